package local

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"time"
)

// What `status` says of a gateway's fast path.
const (
	fastOff     = "off"     // ExtProc answers every request
	fastWaiting = "waiting" // for Envoy's first request, for a lease, or for an Envoy that was tested
	fastOn      = "on"      // Envoy answers hits
	fastUnknown = "?"       // the gateway does not say
)

// trustedMetric is there where a gateway has a route table, and 1 while Envoy may
// answer from it.
const trustedMetric = "sandlane_fastpath_trusted "

// fastPaths asks each gateway, by name.
func fastPaths(ctx context.Context, gateways []GatewayInfo) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	all := map[string]string{}
	for _, g := range gateways {
		all[g.Name] = askFastPath(ctx, g.MetricsURL)
	}
	return all
}

// askFastPath reads a gateway's metrics.
func askFastPath(ctx context.Context, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fastUnknown
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fastUnknown
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fastUnknown
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch value, found := strings.CutPrefix(lines.Text(), trustedMetric); {
		case found && value == "1":
			return fastOn
		case found:
			return fastWaiting
		}
	}
	if lines.Err() != nil {
		return fastUnknown
	}
	return fastOff
}
