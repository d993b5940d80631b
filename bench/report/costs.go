package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// costs are the measured unit costs that docs/scale.md is computed from.
type costs struct {
	podBytes, sandboxBytes, claimBytes, routeBytes float64 // in a gateway's memory
	informerBytes                                  float64 // of a pod in client-go's informer
	podWire, sandboxWire                           float64 // of a watch event
	writeRate                                      float64 // bare writes a second, burst at once
	burst                                          int
	pollMillis                                     float64 // CPU of a poll of polled sandboxes
	polled                                         float64
	requestMicros                                  float64 // CPU of Envoy and gateway for a hit
	whole, wholeRoutes                             float64 // bytes of a gateway with so many routes
	lookMillis, looked                             float64 // CPU of a look at Envoy with so many addresses
}

// unitCosts reads them; an error names the row that is missing.
func unitCosts(r *result.Result) (costs, error) {
	var c costs
	var missing []string
	find := func(into *float64, name string) {
		if row := r.Row(name); row != nil && len(row.Samples) > 0 {
			*into += result.Median(row.Samples)
			return
		}
		missing = append(missing, name)
	}
	// largest finds the row with the greatest number in its name.
	largest := func(format string) (n int) {
		for _, row := range r.Rows {
			var found int
			if _, err := fmt.Sscanf(row.Name, format, &found); err == nil && fmt.Sprintf(format, found) == row.Name {
				n = max(n, found)
			}
		}
		return n
	}
	c.burst = largest("claims/burst-%d/bare/rate")
	polled, whole, looked := largest("idle/poll-%d/sandlane/cpu"), largest("socket/gateway-%d/sandlane/memory"), largest("dataplane/in-use-%d/sandlane/cpu")
	c.polled, c.wholeRoutes, c.looked = float64(polled), float64(whole), float64(looked)
	find(&c.podBytes, "idle/index/sandlane/pod")
	find(&c.sandboxBytes, "idle/index/sandlane/sandbox")
	find(&c.informerBytes, "idle/index/informer/pod")
	find(&c.claimBytes, fmt.Sprintf("idle/registry-%d/sandlane/memory", polled))
	find(&c.pollMillis, fmt.Sprintf("idle/poll-%d/sandlane/cpu", polled))
	find(&c.routeBytes, "routes/100000/sandlane/memory")
	find(&c.podWire, "idle/wire/sandlane/pod")
	find(&c.sandboxWire, "idle/wire/sandlane/sandbox")
	find(&c.writeRate, fmt.Sprintf("claims/burst-%d/bare/rate", c.burst))
	find(&c.requestMicros, "dataplane/hit/sandlane/envoy-cpu")
	find(&c.requestMicros, "dataplane/hit/sandlane/server-cpu")
	find(&c.whole, fmt.Sprintf("socket/gateway-%d/sandlane/memory", whole))
	find(&c.lookMillis, fmt.Sprintf("dataplane/in-use-%d/sandlane/cpu", looked))
	find(&c.lookMillis, fmt.Sprintf("dataplane/in-use-%d/envoy/cpu", looked))
	if len(missing) > 0 {
		return c, fmt.Errorf("docs/scale.md needs the rows %s; run all sections", strings.Join(missing, ", "))
	}
	return c, nil
}

type unit struct {
	name  string
	value float64
	unit  string
}

// table is the costs for people.
func (c costs) table() []unit {
	return []unit{
		{"index, a pod", c.podBytes, "bytes"},
		{"index, a sandbox", c.sandboxBytes, "bytes"},
		{"for comparison: client-go's informer, a pod", c.informerBytes, "bytes"},
		{"route cache, a route", c.routeBytes, "bytes"},
		{"activity registry, a claim", c.claimBytes, "bytes"},
		{fmt.Sprintf("a whole gateway with %.0f routes", c.wholeRoutes), c.whole, "MB"},
		{"watch event, a pod", c.podWire, "bytes"},
		{"watch event, a sandbox", c.sandboxWire, "bytes"},
		{"a request to a sandbox that has a route, Envoy and gateway", c.requestMicros, "µs of CPU"},
		{fmt.Sprintf("bare writes, %d at once", c.burst), c.writeRate, "a second"},
		{fmt.Sprintf("poll of %.0f claims, 1 %% used", c.polled), c.pollMillis, "ms of CPU"},
		{fmt.Sprintf("look at Envoy with %.0f addresses, gateway and Envoy", c.looked), c.lookMillis, "ms of CPU"},
	}
}
