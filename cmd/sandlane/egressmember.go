package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/watch"
	"github.com/sandlane/sandlane/gateway"
)

// egressMember is an egress process among those that acknowledge fences.
type egressMember struct {
	lease  *controlplane.Membership
	server *controlplane.Server
	tls    *controlplane.MutualTLS // nil without files
}

// newEgressMember listens for the controller. The lease is not written yet.
func newEgressMember(o egressOptions, leases controlplane.MemberLeases, pods *watch.Watch, table *claims.Table) (*egressMember, error) {
	m := &egressMember{}
	var err error
	if o.controlTLS.Given() {
		o.controlTLS.Log = o.log
		if m.tls, err = controlplane.LoadTLS(o.controlTLS); err != nil {
			return nil, err
		}
	}
	l, address, err := o.listenControl()
	if err != nil {
		return nil, err
	}
	m.lease, err = controlplane.NewMembership(controlplane.MembershipOptions{
		Kind: controlplane.Egress, Leases: leases, Name: o.name, PodUID: o.podUID, Address: address,
		LeaseDuration: egressLease, RenewEvery: egressRenew, OnJoin: pods.Join, OnLost: table.Drop, Log: o.log,
	})
	if err != nil {
		return nil, err
	}
	m.server, err = controlplane.NewServer(controlplane.ServerOptions{Listener: l, TLS: m.tls, Member: m.lease, Fencer: table, Log: o.log})
	return m, err
}

// start serves the controller and keeps the lease until the context ends.
func (m *egressMember) start(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	if m.tls != nil {
		running.Go(func() error { return m.tls.Start(ctx) })
	}
	running.Go(func() error { return m.server.Start(ctx) })
	running.Go(func() error { return m.lease.Start(ctx) })
	return running.Wait()
}

// listenControl listens where the controller is to call, and returns the gRPC target that the
// lease tells it.
func (o *egressOptions) listenControl() (net.Listener, string, error) {
	if o.controlAddress == "" {
		socket := filepath.Join(o.runDir, gateway.ControlSocket)
		l, err := controlplane.ListenUnix(socket)
		return l, "unix://" + socket, err
	}
	l, err := net.Listen("tcp", o.controlAddress)
	if err != nil {
		return nil, "", fmt.Errorf("listen for the controller: %w", err)
	}
	return l, l.Addr().String(), nil
}
