package main

import (
	"strings"
	"testing"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/reconcilers/address"
)

// An address cools down for longer than Envoy may hold a request that was answered with
// it: else the request could reach the pod that has the address next. Neither
// package knows the other.
func TestAddressesRestLongerThanEnvoyHolds(t *testing.T) {
	if address.DefaultCooldown <= envoy.MaxHold {
		t.Errorf("an address cools down for %v, Envoy may hold a request for %v", address.DefaultCooldown, envoy.MaxHold)
	}
}

// A controller starts with no shorter rest, unless a test asks for it by name.
func TestControllerRefusesAShortRest(t *testing.T) {
	const refusal = "--address-cooldown 7.999s: must not be less than 8s"
	short := []string{"controller", "--kubeconfig", "/nowhere", "--address-cooldown", "7.999s"}
	if code, _, stderr := run(t, short...); code == 0 || !strings.Contains(stderr, refusal) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("code %d and %q, want one line with %q", code, stderr, refusal)
	}
	for _, args := range [][]string{append(short, "--short-address-cooldown=true"), {"controller", "--kubeconfig", "/nowhere", "--address-cooldown", "8s"}} {
		if code, _, stderr := run(t, args...); code == 0 || !strings.Contains(stderr, "reach the API server") {
			t.Errorf("%q: code %d and %q, want that the API server is not there", args, code, stderr)
		}
	}
	if _, help, _ := run(t, "controller", "--help"); strings.Contains(help, "short-address-cooldown") {
		t.Error("the help shows the flag for tests")
	}
}
