package main

import (
	"strings"
	"testing"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/reconcilers/address"
)

// An address rests for longer than Envoy may hold a request that was answered with
// it: else the request could reach the pod that has the address next. Neither
// package knows the other.
func TestAddressesRestLongerThanEnvoyHolds(t *testing.T) {
	if address.DefaultRest <= envoy.MaxHold {
		t.Errorf("an address rests for %v, Envoy may hold a request for %v", address.DefaultRest, envoy.MaxHold)
	}
}

// A controller starts with no shorter rest, unless a test asks for it by name.
func TestControllerRefusesAShortRest(t *testing.T) {
	const refusal = "--address-rest 7.999s: must not be less than 8s"
	short := []string{"controller", "--kubeconfig", "/nowhere", "--address-rest", "7.999s"}
	if code, _, stderr := run(t, short...); code == 0 || !strings.Contains(stderr, refusal) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("code %d and %q, want one line with %q", code, stderr, refusal)
	}
	for _, args := range [][]string{append(short, "--short-address-rest=true"), {"controller", "--kubeconfig", "/nowhere", "--address-rest", "8s"}} {
		if code, _, stderr := run(t, args...); code == 0 || !strings.Contains(stderr, "reach the API server") {
			t.Errorf("%q: code %d and %q, want that the API server is not there", args, code, stderr)
		}
	}
	if _, help, _ := run(t, "controller", "--help"); strings.Contains(help, "short-address-rest") {
		t.Error("the help shows the flag for tests")
	}
}
