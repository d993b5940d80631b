package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// The assumptions, which the page shows.
const (
	life        = 30 * 60.0 // seconds that a sandbox lives
	activeShare = 0.1       // of the sandboxes, which get requests now
	rate        = 1.0       // requests a second to each of those
	activePods  = 10_000.0  // that one Envoy is sized for (docs/design/envoy.md)
	minGateways = 3.0
	useWrites   = 20.0 // a second at most, of when sandboxes were last in use (reconcilers/idletimeout)
)

// steps are the writes to the API server from a sandbox's create until its place
// is filled again. All but the scheduler's and one of the kubelet's, which the test
// has no part for, are counted by TestWritesOfALife of reconcilers.
var steps = []struct {
	what         string
	pod, sandbox float64 // writes of either kind of object
}{
	{"the Sandbox with its binding", 0, 1},
	{"the claim, on the pod", 1, 0},
	{"the sandbox runs", 0, 1},
	{"its release is prepared, where it was idle", 0, 1},
	{"its end", 0, 1},
	{"the pod is stopped, and its finalizer goes", 1, 0},
	{"the record of the end, and of the fence", 0, 1},
	{"the pod's delete, and its kubelet's", 2, 0},
	{"the next pod: made, bound to a node, two of its kubelet, idle", 5, 0},
	{"the Sandbox's delete after its time on record, and its finalizer", 0, 2},
}

func writesOfLife() (pod, sandbox float64) {
	for _, s := range steps {
		pod, sandbox = pod+s.pod, sandbox+s.sandbox
	}
	return pod, sandbox
}

// load is the load of a fleet.
type load struct {
	perSecond, writes, gateways, memory, watch, poll, cores float64
}

func (c costs) of(sandboxes float64) load {
	var l load
	pod, sandbox := writesOfLife()
	active := sandboxes * activeShare
	l.perSecond = sandboxes / life
	l.writes = l.perSecond*(pod+sandbox) + useWrites
	l.gateways = math.Max(minGateways, math.Ceil(active/activePods))
	// Every gateway knows all sandboxes, and may have to route to all active ones.
	l.memory = c.base + sandboxes*(c.known-c.base)/c.wholeRoutes + active*(c.whole-c.known)/c.wholeRoutes
	l.watch = l.perSecond * (pod*c.podWire + sandbox*c.sandboxWire)
	l.poll = c.pollMillis * active / c.polled
	l.cores = active*rate*c.request(active/l.gateways).micros/1e6 + l.gateways*c.inUseMillis/1000*math.Min(1, active/l.gateways/c.inUseAddresses)
	return l
}

// limit returns the size of the fleet whose writes alone keep an API server like the measured
// one busy.
func (c costs) limit() float64 {
	pod, sandbox := writesOfLife()
	return (c.writeRate - useWrites) * life / (pod + sandbox)
}

func scale(r *result.Result, c costs) string {
	var b strings.Builder
	pod, sandbox := writesOfLife()
	b.WriteString("# Scale, on paper\n\n" + generated)
	fmt.Fprintf(&b, "Computed from unit costs measured on %s, %d cores; no such fleet has been run.\n\n", r.Machine.CPU, r.Machine.Cores)
	fmt.Fprintf(&b, "Assumed: a sandbox lives %.0f minutes and ends because it is idle; %.0f %% get requests at a time, %.0f a second each; a gateway serves\n"+
		"%.0f of those (`design/envoy.md`), and there are at least %.0f. The API server sees %.0f writes in a sandbox's life, and a gateway's\n"+
		"watch as many events (%.0f of pods, %.0f of Sandboxes; `design/design.md`, 4), besides at most %.0f writes a second of last uses:\n\n",
		life/60, 100*activeShare, rate, activePods, minGateways, pod+sandbox, pod, sandbox, useWrites)
	for _, s := range steps {
		fmt.Fprintf(&b, "- %s: %.0f\n", s.what, s.pod+s.sandbox)
	}
	b.WriteString("\n## Unit costs\n\n| what | measured |\n|---|---|\n")
	for _, u := range c.table() {
		fmt.Fprintf(&b, "| %s | %s %s |\n", u.name, number(u.value), u.unit)
	}
	b.WriteString("\n## Fleets\n\nMemory is of the whole process, computed from that with one sandbox and with many.\n\n" +
		"| sandboxes | come and go, a second | API writes a second | of the measured API server | gateways | cores for requests, with their Envoys | of each | memory of each gateway " +
		"| watch bytes a second, each | all | a poll of each |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range []float64{10_000, 100_000, 1_000_000} {
		l := c.of(n)
		fmt.Fprintf(&b, "| %.0f | %s | %s | %s | %.0f | %s | %s | %s MB | %s kB | %s kB | %s ms |\n", n, number(l.perSecond), number(l.writes), percent(l.writes/c.writeRate),
			l.gateways, number(l.cores), number(l.cores/l.gateways), number(l.memory), number(l.watch/1000), number(l.gateways*l.watch/1000), number(l.poll))
	}
	b.WriteString(limits(c))
	return b.String()
}

// limits returns text about which limit is reached first, and what to do then.
func limits(c costs) string {
	l := c.of(1_000_000)
	full := c.request(activePods)
	return fmt.Sprintf("\n## Where it ends\n\n"+
		"1. **Writes to the API server.** One like the measured, which shares its cores with everything else, is full at about %.0f such sandboxes; longer lives move that in proportion.\n"+
		"   Beyond it a fleet is several clusters, each with gateways of its own. An ID does not say where it lives: what hands IDs out must remember it.\n"+
		"2. **Envoy's CPU with many upstream hosts.** A request costs %s µs of CPU with %d of them, so %.0f active sandboxes at one gateway need %s cores\n"+
		"   for a request a second each. More gateways with fewer active sandboxes cost less, if requests for a sandbox keep to one of them.\n"+
		"3. **Every gateway watches everything.** Its memory (%s MB at 1,000,000) and watch bytes grow with the fleet, though a pod takes %s bytes\n"+
		"   (%s in client-go's informer, %s stripped).\n"+
		"4. **The fence waits for all gateways**: the slowest decides when a released address may serve again. No request waits for it.\n",
		math.Floor(c.limit()/100)*100, number(full.micros), full.sandboxes, activePods, number(activePods*rate*full.micros/1e6),
		number(l.memory), number(c.podBytes), number(c.informerBytes), number(c.strippedBytes))
}
