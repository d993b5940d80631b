package local

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/sandlane/sandlane/local/authority"
	"github.com/sandlane/sandlane/local/supervise"
)

// Several gateways:
//
// Options.Gateways makes pairs of Envoy and gateway on one cluster with one
// controller: gateway and envoy, gateway-2 and envoy-2, … What up.json says at
// its top is the first one's; all stand in its list.

// gatewayPair is one gateway and its Envoy.
type gatewayPair struct {
	name, envoyName   string
	port, metricsPort int
	domain            string // empty without TLS
}

// gatewayPairs names n pairs: gateway and envoy, gateway-2 and envoy-2, … Each
// takes a port for metrics from free, and all but the first one for clients.
func gatewayPairs(n, firstPort int, free []int, domain string) []gatewayPair {
	pairs := []gatewayPair{{name: "gateway", envoyName: "envoy", port: firstPort, metricsPort: free[0], domain: domain}}
	for i := 2; i <= n; i++ {
		pairs = append(pairs, gatewayPair{
			name: fmt.Sprintf("gateway-%d", i), envoyName: fmt.Sprintf("envoy-%d", i),
			port: free[2*i-3], metricsPort: free[2*i-2], domain: domain,
		})
	}
	return pairs
}

func (g gatewayPair) metricsURL() string { return "http://" + loopback(g.metricsPort) + "/metrics" }

func (g gatewayPair) url() string {
	if g.domain != "" {
		return "https://" + loopback(g.port)
	}
	return "http://" + loopback(g.port)
}

// sdkDomain is where SDKs find <port>-<ID> below.
func (g gatewayPair) sdkDomain() string {
	if g.domain != "" {
		return hostOf(g.domain, g.port)
	}
	return fmt.Sprintf("localhost:%d", g.port)
}

// envoyWorkers leaves cores to the other processes: on a small machine a
// second worker costs more than it gives.
func envoyWorkers(gateways int) int { return min(max(runtime.NumCPU()/2/gateways, 1), 4) }

func (u *up) startGateway(ctx context.Context, g gatewayPair) error {
	if err := os.MkdirAll(u.gatewayRun(g.name), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s's sockets: %w", g.name, err)
	}
	return u.group.Start(ctx, u.dataPlane.gateway(g))
}

func (u *up) startEnvoy(ctx context.Context, g gatewayPair) error {
	if err := checkPort(g.port); err != nil { // another process may have taken it meanwhile
		return err
	}
	spec, err := u.dataPlane.envoy(g)
	if err != nil {
		return err
	}
	return u.group.Start(ctx, spec)
}

// upFileNow describes what runs at this moment.
func (u *up) upFileNow() UpFile {
	file := UpFile{APIKey: u.apiKey, ConsoleURL: u.consoleURL, Kubeconfig: u.kubeconfig()}
	if u.o.TLS {
		file.CAFile, file.NodeResolve = authority.CertFile(u.tlsDir(u.o.Domain)), u.nodeResolve(u.o.Domain)
	}
	return describe(u.group.Status(), u.gateways, file)
}

// describe adds processes and gateways to file. Pids has what there is once and
// the first gateway's; the others stand in Gateways alone.
func describe(processes []supervise.Status, gateways []gatewayPair, file UpFile) UpFile {
	file.Pids = map[string]int{}
	for _, p := range processes {
		if p.PID != 0 {
			file.Pids[p.Name] = p.PID
		}
	}
	for i, g := range gateways {
		file.Gateways = append(file.Gateways, GatewayInfo{
			Name: g.name, URL: g.url(), Domain: g.sdkDomain(), MetricsURL: g.metricsURL(),
			Pids: map[string]int{"gateway": file.Pids[g.name], "envoy": file.Pids[g.envoyName]},
		})
		if i > 0 {
			delete(file.Pids, g.name)
			delete(file.Pids, g.envoyName)
		}
	}
	file.GatewayURL, file.Domain, file.MetricsURL = file.Gateways[0].URL, file.Gateways[0].Domain, file.Gateways[0].MetricsURL
	return file
}
