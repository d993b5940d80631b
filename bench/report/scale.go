package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// costs are the measured unit costs that docs/scale.md is computed from.
type costs struct {
	podBytes, sandboxBytes, claimBytes, routeBytes float64 // in a gateway's memory
	podWire, sandboxWire                           float64 // of a watch event
	writeRate                                      float64 // bare writes a second, 300 at once
	pollMillis                                     float64 // CPU of a poll of `polled` sandboxes
	polled                                         float64
}

// What is assumed, and shown on the page.
const (
	life         = 30 * 60.0 // seconds that a sandbox lives
	activeShare  = 0.1       // of the sandboxes, which get requests now
	activePods   = 10_000.0  // that one Envoy is sized for (docs/design/envoy.md)
	minGateways  = 3.0
	writesOfLife = 12.0 // see the page
	podEvents    = 7.0
	sandboxEvent = 6.0
)

// unitCosts reads them; an error names the row that is missing.
func unitCosts(r *result.Result) (costs, error) {
	var c costs
	find := func(into *float64, names ...string) error {
		for _, name := range names {
			if row := r.Row(name); row != nil && len(row.Samples) > 0 {
				*into = result.Median(row.Samples)
				return nil
			}
		}
		return fmt.Errorf("docs/scale.md needs the row %s; run all sections", names[0])
	}
	for _, n := range []float64{100_000, 10_000} {
		if row := r.Row(fmt.Sprintf("idle/poll-%.0f/sandlane/cpu", n)); row != nil && c.polled == 0 {
			c.polled = n
		}
	}
	for _, f := range []struct {
		into *float64
		name string
	}{
		{&c.podBytes, "idle/index/sandlane/pod"}, {&c.sandboxBytes, "idle/index/sandlane/sandbox"},
		{&c.claimBytes, fmt.Sprintf("idle/registry-%.0f/sandlane/memory", c.polled)}, {&c.routeBytes, "routes/100000/sandlane/memory"},
		{&c.podWire, "idle/wire/sandlane/pod"}, {&c.sandboxWire, "idle/wire/sandlane/sandbox"},
		{&c.writeRate, "claims/burst-300/bare/rate"}, {&c.pollMillis, fmt.Sprintf("idle/poll-%.0f/sandlane/cpu", c.polled)},
	} {
		if err := find(f.into, f.name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// load is what a fleet asks for.
type load struct {
	perSecond, writes, gateways, memory, watch, poll float64
}

func (c costs) of(sandboxes float64) load {
	var l load
	l.perSecond = sandboxes / life
	l.writes = l.perSecond * writesOfLife
	l.gateways = math.Max(minGateways, math.Ceil(sandboxes*activeShare/activePods))
	routes := sandboxes * activeShare // any gateway may see them all
	l.memory = sandboxes*(c.podBytes+c.sandboxBytes) + routes*(c.routeBytes+c.claimBytes)
	l.watch = l.perSecond * (podEvents*c.podWire + sandboxEvent*c.sandboxWire)
	l.poll = c.pollMillis * routes / c.polled
	return l
}

// limit is the fleet at which an API server like the measured one is busy with
// writes alone.
func (c costs) limit() float64 { return c.writeRate * life / writesOfLife }

func scale(r *result.Result, c costs) string {
	var b strings.Builder
	b.WriteString("# Scale, on paper\n\n" + generated)
	fmt.Fprintf(&b, "Computed from the unit costs that were measured on %s, %d cores; nobody has run such a fleet.\n\n", r.Machine.CPU, r.Machine.Cores)
	fmt.Fprintf(&b, "Assumed: a sandbox lives %.0f minutes; %.0f %% of them get requests at a time, spread over all gateways; one gateway serves %.0f active pods\n"+
		"(`docs/design/envoy.md`), and there are at least %.0f. The life of a sandbox is %.0f writes: its create, the claim, its states (2), its end, the pod's end,\n"+
		"the record of the end and of the fence, the pod's delete and finalizer, and the next pod's create and way to idle (3); a gateway's watch shows %.0f pod and %.0f sandbox events of it.\n\n",
		life/60, 100*activeShare, activePods, minGateways, writesOfLife, podEvents, sandboxEvent)
	b.WriteString("| unit cost | measured |\n|---|---|\n")
	for _, u := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"index, a pod", c.podBytes, "bytes"}, {"index, a sandbox", c.sandboxBytes, "bytes"}, {"route cache, a route", c.routeBytes, "bytes"},
		{"activity registry, a claim", c.claimBytes, "bytes"}, {"watch event, a pod", c.podWire, "bytes"}, {"watch event, a sandbox", c.sandboxWire, "bytes"},
		{"bare writes, 300 at once", c.writeRate, "a second"}, {fmt.Sprintf("poll of %.0f claims", c.polled), c.pollMillis, "ms of CPU"},
	} {
		fmt.Fprintf(&b, "| %s | %s %s |\n", u.name, number(u.value), u.unit)
	}
	b.WriteString("\n| sandboxes | come and go, a second | API writes a second | of the measured API server | gateways | memory of each for records and routes | watch bytes a second, each | a poll of each |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, n := range []float64{10_000, 100_000, 1_000_000} {
		l := c.of(n)
		fmt.Fprintf(&b, "| %.0f | %s | %s | %s | %.0f | %s MB | %s kB | %s ms |\n", n, number(l.perSecond), number(l.writes), percent(l.writes/c.writeRate),
			l.gateways, number(l.memory/(1<<20)), number(l.watch/1000), number(l.poll))
	}
	fmt.Fprintf(&b, "\nThe first limit is the API server's writes: one like the measured, sharing its cores with everything else, is full at about %.0f such sandboxes.\n"+
		"Longer lives move it in proportion. Beyond it a fleet is several clusters, each with its own gateways, behind a name or a balancer that knows which: nothing in\n"+
		"Sandlane is shared between clusters, and an ID says nothing of where it lives, so whoever hands IDs out must remember it. The second limit is that every gateway\n"+
		"watches everything: its memory and watch bytes grow with the fleet, not with its share of it.\n", math.Floor(c.limit()/100)*100)
	return b.String()
}
