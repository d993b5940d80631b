package main

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// The processes that a controller talks to: gateways and egress processes.

// An egress process's lease is short: while it does not answer, sandboxes of pools with egress
// ByName end that much later. Clocks differ by little in so short a time.
const (
	egressLease = 15 * time.Second
	egressRenew = 4 * time.Second
	egressGrace = 2 * time.Second
)

// egress returns what reaches all egress processes, kept current by mgr.
func (o *controllerOptions) egress(mgr manager.Manager, clientset kubernetes.Interface, tls *controlplane.MutualTLS) (*controlplane.Client, func(), error) {
	directory, err := controlplane.NewDirectory(controlplane.DirectoryOptions{
		Kind: controlplane.Egress, Leases: clientset.CoordinationV1().Leases(o.systemNamespace), Grace: egressGrace, Log: o.log,
	})
	if err != nil {
		return nil, nil, err
	}
	if tls != nil {
		tls = tls.For(controlplane.EgressIdentity)
	}
	processes, err := controlplane.NewClient(controlplane.ClientOptions{Directory: directory, TLS: tls, Log: o.log})
	if err != nil {
		return nil, nil, err
	}
	return processes, processes.Close, mgr.Add(manager.RunnableFunc(directory.Start))
}

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

// credentials are the controller's on the control plane, kept current by mgr; nil
// if it was given no files.
func (o *controllerOptions) credentials(mgr manager.Manager) (*controlplane.MutualTLS, error) {
	if !o.controlTLS.Given() {
		return nil, nil
	}
	files := o.controlTLS
	files.Log = o.log
	c, err := controlplane.LoadTLS(files)
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(c)
}
