package local

import (
	"context"

	"github.com/sandlane/sandlane/console/processes"
)

// fastPaths is what each gateway says of its fast path, by name.
func fastPaths(ctx context.Context, gateways []GatewayInfo) map[string]string {
	var all []processes.Process
	for _, g := range gateways {
		all = append(all, processes.Process{Name: g.Name, Gateway: true, ReadMetrics: g.readMetrics})
	}
	found := map[string]string{}
	for name, m := range processes.Ask(ctx, all) {
		found[name] = string(m.FastPath)
	}
	return found
}
