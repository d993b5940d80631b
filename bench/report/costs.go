package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// costs are the measured unit costs from which docs/scale.md is computed.
type costs struct {
	informerBytes                   float64 // of a pod in client-go's informer, as controllers keep it
	podWire, sandboxWire            float64 // of a watch event
	writeRate                       float64 // bare writes a second, burst at once
	burst                           int
	requests                        []requestCost
	base, known, whole, wholeRoutes float64 // MB of a gateway: with one sandbox, with many, with their routes too
	inUseMillis, inUseAddresses     float64 // CPU of a poll of Envoy for open requests, with so many addresses
}

// requestCost is the CPU of Envoy and gateway for a hit when they know that many sandboxes.
type requestCost struct {
	sandboxes int
	micros    float64
}

// unitCosts reads the unit costs from a result; an error names a missing row.
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
	// numbers returns the numbers in the names of rows, smallest first.
	numbers := func(format string) (all []int) {
		for _, row := range r.Rows {
			var found int
			if _, err := fmt.Sscanf(row.Name, format, &found); err == nil && fmt.Sprintf(format, found) == row.Name {
				all = append(all, found)
			}
		}
		slices.Sort(all)
		return all
	}
	largest := func(format string) int {
		if all := numbers(format); all != nil {
			return all[len(all)-1]
		}
		return 0
	}
	c.burst = largest("claims/burst-%d/bare/rate")
	whole, addresses := largest("socket/gateway-%d/sandlane/memory"), largest("dataplane/in-use-%d/sandlane/cpu")
	c.wholeRoutes, c.inUseAddresses = float64(whole), float64(addresses)
	find(&c.informerBytes, "idle/index/informer/pod")
	find(&c.podWire, "idle/wire/sandlane/pod")
	find(&c.sandboxWire, "idle/wire/sandlane/sandbox")
	find(&c.writeRate, fmt.Sprintf("claims/burst-%d/bare/rate", c.burst))
	for _, n := range numbers("dataplane/fleet-%d/sandlane/envoy-cpu") {
		cost := requestCost{sandboxes: n}
		find(&cost.micros, fmt.Sprintf("dataplane/fleet-%d/sandlane/envoy-cpu", n))
		find(&cost.micros, fmt.Sprintf("dataplane/fleet-%d/sandlane/server-cpu", n))
		c.requests = append(c.requests, cost)
	}
	if c.requests == nil {
		missing = append(missing, "dataplane/fleet-N/sandlane/envoy-cpu")
	}
	find(&c.base, "dataplane/hit/sandlane/server-memory")
	find(&c.known, fmt.Sprintf("socket/gateway-%d/sandlane/memory-without-routes", whole))
	find(&c.whole, fmt.Sprintf("socket/gateway-%d/sandlane/memory", whole))
	find(&c.inUseMillis, fmt.Sprintf("dataplane/in-use-%d/sandlane/cpu", addresses))
	find(&c.inUseMillis, fmt.Sprintf("dataplane/in-use-%d/envoy/cpu", addresses))
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

// request returns the cost of a request when Envoy knows that many sandboxes: the cost that
// was measured with the smallest number that is no less, or with the largest number.
func (c costs) request(sandboxes float64) requestCost {
	for _, r := range c.requests {
		if float64(r.sandboxes) >= sandboxes {
			return r
		}
	}
	return c.requests[len(c.requests)-1]
}

// table returns the costs as lines of a table.
func (c costs) table() []unit {
	all := []unit{
		{"a controller's cache, a pod", c.informerBytes, "bytes"},
		{"a whole gateway that knows one sandbox", c.base, "MB"},
		{fmt.Sprintf("one that knows %.0f", c.wholeRoutes), c.known, "MB"},
		{"the same with a route to each", c.whole, "MB"},
		{"watch event, a pod", c.podWire, "bytes"},
		{"watch event, a sandbox", c.sandboxWire, "bytes"},
		{fmt.Sprintf("bare writes of pods, %d at once; etcd does not wait for its disk", c.burst), c.writeRate, "a second"},
		{fmt.Sprintf("look at Envoy with %.0f addresses, gateway and Envoy", c.inUseAddresses), c.inUseMillis, "ms of CPU"},
	}
	for _, r := range c.requests {
		all = append(all, unit{fmt.Sprintf("a request, where Envoy has %d sandboxes; Envoy and gateway", r.sandboxes), r.micros, "µs of CPU"})
	}
	return all
}
