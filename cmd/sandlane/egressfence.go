package main

import (
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlane/sandlane/controlplane"
)

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
