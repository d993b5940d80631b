package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/controlplane"
)

// assembleControl makes the lease and the service for controllers.
func (g *gateway) assembleControl(clientset kubernetes.Interface) error {
	if g.o.ControlTLS.Given() {
		var err error
		if g.controlTLS, err = controlplane.LoadTLS(g.o.ControlTLS); err != nil {
			return err
		}
	}
	l, address, err := g.o.listenControl()
	if err != nil {
		return err
	}
	g.member, err = controlplane.NewMembership(controlplane.MembershipOptions{
		Leases: clientset.CoordinationV1().Leases(g.o.SystemNamespace),
		Name:   g.o.Name, Address: address,
		PodUID:        g.o.PodUID,
		LeaseDuration: g.o.LeaseDuration, RenewEvery: g.o.RenewEvery,
		OnJoin: g.join,
		OnLost: func(ctx context.Context) error {
			g.fast.distrust()
			g.cache.DropAll()
			return g.cache.WaitFlights(ctx)
		},
		Metrics: controlplane.NewMembershipMetrics(g.reg), Log: g.o.Log,
	})
	if err != nil {
		return err
	}
	g.control, err = controlplane.NewServer(controlplane.ServerOptions{
		Listener: l, TLS: g.controlTLS, Member: g.member, Fencer: g.cache, Activity: g.usage,
		Demand:        controlplane.LocalDemand{Set: g.set, Creates: g.creates},
		Releaser:      g.holds,
		PauseEnforcer: g.own.pauser,
		PickOffset:    g.set.SetPickOffset,
		Log:           g.o.Log,
	})
	return err
}

// listenControl listens where controllers are to call, and returns the gRPC target
// that the lease tells them.
func (o *Options) listenControl() (net.Listener, string, error) {
	if o.ControlAddress == "" {
		l, err := controlplane.ListenUnix(o.path(ControlSocket))
		return l, "unix://" + o.path(ControlSocket), err
	}
	l, err := net.Listen("tcp", o.ControlAddress)
	if err != nil {
		return nil, "", fmt.Errorf("listen for controllers: %w", err)
	}
	return l, l.Addr().String(), nil
}

// validateControl refuses an address that the lease could not tell controllers,
// and one that any client could call.
func (o *Options) validateControl() error {
	if o.ControlAddress == "" {
		return nil
	}
	// An IPv4 address may stand in brackets: a chart does not know which it is.
	host, _, err := net.SplitHostPort(o.ControlAddress)
	ip, notIP := netip.ParseAddr(host)
	switch {
	case err != nil || notIP != nil || ip.IsUnspecified():
		return fmt.Errorf("control-plane address %q: must be this pod's IP address with a port", o.ControlAddress)
	case !o.ControlTLS.Given():
		return fmt.Errorf("control-plane address %s: other pods can reach it, so TLS files are required", o.ControlAddress)
	}
	return nil
}
