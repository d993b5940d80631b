package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// What is assumed, and shown on the page.
const (
	life        = 30 * 60.0 // seconds that a sandbox lives
	activeShare = 0.1       // of the sandboxes, which get requests now
	rate        = 1.0       // requests a second to each of those
	activePods  = 10_000.0  // that one Envoy is sized for (docs/design/envoy.md)
	minGateways = 3.0
)

// steps are the writes to the API server from a sandbox's create until its place
// is filled again.
var steps = []struct {
	what         string
	pod, sandbox float64 // writes of either kind of object
}{
	{"the Sandbox with its binding", 0, 1},
	{"the claim, on the pod", 1, 0},
	{"the sandbox starts, and runs", 0, 2},
	{"its end", 0, 1},
	{"the pod is stopped", 1, 0},
	{"the record of the end, and of the fence", 0, 2},
	{"the pod's delete, and its finalizer", 2, 0},
	{"the next pod: made, bound to a node, two of its kubelet, idle", 5, 0},
	{"the Sandbox's delete after its time on record, and its finalizer", 0, 2},
}

func writesOfLife() (pod, sandbox float64) {
	for _, s := range steps {
		pod, sandbox = pod+s.pod, sandbox+s.sandbox
	}
	return pod, sandbox
}

// load is what a fleet asks for.
type load struct {
	perSecond, writes, gateways, memory, watch, poll, cores float64
}

func (c costs) of(sandboxes float64) load {
	var l load
	pod, sandbox := writesOfLife()
	active := sandboxes * activeShare
	l.perSecond = sandboxes / life
	l.writes = l.perSecond * (pod + sandbox)
	l.gateways = math.Max(minGateways, math.Ceil(active/activePods))
	// Any gateway may see all that are active.
	l.memory = sandboxes*(c.podBytes+c.sandboxBytes) + active*(c.routeBytes+c.claimBytes)
	l.watch = l.perSecond * (pod*c.podWire + sandbox*c.sandboxWire)
	l.poll = c.pollMillis * active / c.polled
	l.cores = active * rate * c.requestMicros / 1e6
	return l
}

// limit is the fleet at which an API server like the measured one is busy with
// writes alone.
func (c costs) limit() float64 {
	pod, sandbox := writesOfLife()
	return c.writeRate * life / (pod + sandbox)
}

func scale(r *result.Result, c costs) string {
	var b strings.Builder
	pod, sandbox := writesOfLife()
	b.WriteString("# Scale, on paper\n\n" + generated)
	fmt.Fprintf(&b, "Computed from the unit costs that were measured on %s, %d cores; nobody has run such a fleet.\n\n", r.Machine.CPU, r.Machine.Cores)
	fmt.Fprintf(&b, "Assumed: a sandbox lives %.0f minutes; %.0f %% of them get requests at a time, %.0f a second each, spread over all gateways; one gateway serves\n"+
		"%.0f active pods (`docs/design/envoy.md`), and there are at least %.0f. Of a sandbox's life the API server sees %.0f writes, and a gateway's watch as many events\n"+
		"(%.0f of pods, %.0f of Sandboxes), by the protocol in `docs/design/design.md`, 4:\n\n",
		life/60, 100*activeShare, rate, activePods, minGateways, pod+sandbox, pod, sandbox)
	for _, s := range steps {
		fmt.Fprintf(&b, "- %s: %.0f\n", s.what, s.pod+s.sandbox)
	}
	b.WriteString("\n## Unit costs\n\n| what | measured |\n|---|---|\n")
	for _, u := range c.table() {
		fmt.Fprintf(&b, "| %s | %s %s |\n", u.name, number(u.value), u.unit)
	}
	b.WriteString("\n## Fleets\n\n| sandboxes | come and go, a second | API writes a second | of the measured API server | gateways | cores of all gateways and Envoys | memory of each for records and routes " +
		"| watch bytes a second, each | all | a poll of each |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range []float64{10_000, 100_000, 1_000_000} {
		l := c.of(n)
		fmt.Fprintf(&b, "| %.0f | %s | %s | %s | %.0f | %s | %s MB | %s kB | %s kB | %s ms |\n", n, number(l.perSecond), number(l.writes), percent(l.writes/c.writeRate),
			l.gateways, number(l.cores), number(l.memory/(1<<20)), number(l.watch/1000), number(l.gateways*l.watch/1000), number(l.poll))
	}
	b.WriteString(limits(c))
	return b.String()
}

// limits says what is met first, and what is done about it.
func limits(c costs) string {
	l := c.of(1_000_000)
	return fmt.Sprintf("\n## Where it ends\n\n1. **Writes to the API server.** One like the measured, which shares its cores with everything else, is busy with writes alone at about %.0f such sandboxes; longer\n"+
		"   lives move that in proportion. What is done: nothing is written while a claim waits, a request to a sandbox that has a pod writes nothing at all, `lastActive`\n"+
		"   is written at most 20 times a second in all, and a claim is two writes. Beyond it a fleet is several clusters, each with its own gateways, behind a name or a\n"+
		"   balancer that knows which: nothing in Sandlane is shared between clusters, and an ID does not say where it lives, so whoever hands IDs out must remember it.\n"+
		"2. **Every gateway watches everything.** Its memory (%s MB for records at 1,000,000) and its watch bytes grow with the fleet, not with its share of it. What is done:\n"+
		"   records of a few hundred bytes in place of objects (%s bytes a pod against %s in client-go's informer). A pod's event is mostly what the kubelet and\n"+
		"   managedFields say, which a watch cannot leave out.\n"+
		"3. **The fence waits for all gateways**, so the slowest of them decides when a released address may serve again; no request waits for it, and the next pod warms meanwhile.\n",
		math.Floor(c.limit()/100)*100, number(l.memory/(1<<20)), number(c.podBytes), number(c.informerBytes))
}
