package local

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/supervise"
)

// bridgeAddress is the address of this machine that pods know.
func (d *dataPlane) bridgeAddress() string {
	return network.GatewayOf(netip.MustParsePrefix(d.subnet)).String()
}

// egressProcess serves at the bridge's address, which is there once the node runs.
func (d *dataPlane) egressProcess() supervise.Spec {
	spec := d.ours("egress", "--name", "egress", "--run-dir", d.gatewayRun("egress"), "--address", d.bridgeAddress(),
		"--system-namespace", SystemNamespace, "--metrics-address", loopback(d.egressPort))
	spec.Args = append(spec.Args, d.controlArgs("egress")...)
	for _, f := range []struct{ flag, value string }{
		{"--open", strings.Join(d.egress.Open, ",")}, {"--resolver", d.egress.Resolver}, {"--upstream-ca", d.egress.RootsFile},
	} {
		if f.value != "" {
			spec.Args = append(spec.Args, f.flag, f.value)
		}
	}
	spec.Ready = func(ctx context.Context) error { return get(ctx, "http://"+loopback(d.egressPort)+"/readyz", nil) }
	return spec
}

func (u *up) startEgress(ctx context.Context) error {
	if err := os.MkdirAll(u.gatewayRun("egress"), 0o700); err != nil {
		return fmt.Errorf("make the folder of egress's socket: %w", err)
	}
	return u.group.Start(ctx, u.dataPlane.egressProcess())
}

// byName gives a pool of E2B's sandboxes egress by name, where there is an egress process.
func (u *up) byName(pool *v1alpha1.SandboxPool) *v1alpha1.SandboxPool {
	if u.o.Egress.Run {
		pool.Spec.Egress = v1alpha1.EgressByName
	}
	return pool
}
