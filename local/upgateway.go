package local

import (
	"context"
	"fmt"
	"os"
)

func (u *up) startGateway(ctx context.Context, g gatewayPair) error {
	if err := os.MkdirAll(u.gatewayRun(g.name), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s's sockets: %w", g.name, err)
	}
	return u.group.Start(ctx, u.dataPlane.gateway(g))
}

func (u *up) startEnvoy(ctx context.Context, g gatewayPair) error {
	if err := checkPort(g.port); err != nil { // somebody may have come meanwhile
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
	pids := map[string]int{}
	for _, p := range u.group.Status() {
		if p.PID != 0 {
			pids[p.Name] = p.PID
		}
	}
	file := UpFile{APIKey: u.apiKey, Kubeconfig: u.kubeconfig(), Pids: pids}
	for _, g := range u.gateways {
		file.Gateways = append(file.Gateways, GatewayInfo{
			Name: g.name, URL: g.url(), MetricsURL: g.metricsURL(),
			Pids: map[string]int{"gateway": pids[g.name], "envoy": pids[g.envoyName]},
		})
	}
	file.GatewayURL, file.MetricsURL = file.Gateways[0].URL, file.Gateways[0].MetricsURL
	return file
}
