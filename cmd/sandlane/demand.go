package main

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// wokenRoom is how many pools whose demand has changed are kept until they are looked
// at. Beyond that a pool waits for its next look, ten seconds at most.
const wokenRoom = 1024

// pollDemand returns what polls gateways for what waits, and the pools whose demand
// has changed.
func pollDemand(gateways *controlplane.Client) (*controlplane.Demands, <-chan event.GenericEvent) {
	woken := make(chan event.GenericEvent, wokenRoom)
	return controlplane.NewDemands(gateways, func(pool types.NamespacedName) {
		p := &v1alpha1.SandboxPool{}
		p.Namespace, p.Name = pool.Namespace, pool.Name
		select {
		case woken <- event.GenericEvent{Object: p}:
		default:
		}
	}), woken
}
