package main

import (
	"testing"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/reconcilers/address"
)

// An address rests for longer than Envoy may hold a request that was answered with
// it: else the request could reach the pod that has the address next. Neither
// package knows the other.
func TestAddressesRestLongerThanEnvoyHolds(t *testing.T) {
	if address.Rest <= envoy.MaxHold {
		t.Errorf("an address rests for %v, Envoy may hold a request for %v", address.Rest, envoy.MaxHold)
	}
}
