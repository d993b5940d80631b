package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandlane/sandlane/test/result"
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
	pod, sandbox float64 // writes of either kind of object
}{
	{0, 1}, // the Sandbox with its binding
	{1, 0}, // the claim, on the pod
	{0, 1}, // the sandbox runs
	{0, 1}, // its release is prepared, where it was idle
	{0, 1}, // its end
	{1, 0}, // the pod is stopped, and its finalizer goes
	{0, 1}, // the record of the end, and of the fence
	{2, 0}, // the pod's delete, and its kubelet's
	{5, 0}, // the next pod: made, bound to a node, two of its kubelet, idle
	{0, 2}, // the Sandbox's delete after its time on record, and its finalizer
}

func writesOfLife() (pod, sandbox float64) {
	for _, s := range steps {
		pod, sandbox = pod+s.pod, sandbox+s.sandbox
	}
	return pod, sandbox
}

// load is the load of a fleet.
type load struct {
	perSecond, writes, gateways, memory, watch, cores float64
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
	fmt.Fprintf(&b, "Assumed: a sandbox lives %.0f minutes and ends because it is idle; %.0f %% get requests at a time, %.0f a second each; a gateway serves "+
		"%.0f of those (`design/envoy.md`), and there are at least %.0f.\n\n", life/60, 100*activeShare, rate, activePods, minGateways)
	b.WriteString("## Fleets\n\n" +
		"| sandboxes | come and go, a second | API writes a second | of the measured API server | gateways | cores of each, with its Envoy | memory of each gateway " +
		"| watch bytes a second, each |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range []float64{10_000, 100_000, 1_000_000} {
		l := c.of(n)
		fmt.Fprintf(&b, "| %.0f | %s | %s | %s | %.0f | %s | %s MB | %s kB |\n", n, number(l.perSecond), number(l.writes), percent(l.writes/c.writeRate),
			l.gateways, number(l.cores/l.gateways), number(l.memory), number(l.watch/1000))
	}
	b.WriteString(limits(c))
	b.WriteString(controllers(r, c))
	b.WriteString("\n## Unit costs\n\n")
	for _, u := range c.table() {
		fmt.Fprintf(&b, "- %s: %s %s\n", u.name, number(u.value), u.unit)
	}
	fmt.Fprintf(&b, "\nA life has %.0f writes of pods and %.0f of Sandboxes (`bench/report/scale.go` lists them), each also an event of every gateway's watch; "+
		"besides there are at most %.0f a second of last uses.\n", pod, sandbox, useWrites)
	return b.String()
}

// controllers returns the section about the controllers, whose unit costs a run may lack.
func controllers(r *result.Result, c costs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Controllers\n\n"+
		"One controller works for the whole fleet; the others keep the same cache and wait, so more of them make nothing faster. "+
		"The cache has every pod of the pools as client-go keeps it: %s MB for 100,000, and their Sandboxes besides; set `controller.resources` by that.\n\n",
		number(c.informerBytes*100_000/1e6))
	for _, of := range []struct{ row, what string }{
		{"control/pod-event-10000/sandlane/time", "an event of a pod, in a pool of 10,000"},
		{"control/idle-check-100000/sandlane/time", "the check for idleness each second, of 100,000 sandboxes"},
	} {
		if took, unit, ok := measured(r, of.row); ok {
			fmt.Fprintf(&b, "- %s: %s %s\n", of.what, number(took), unit)
		}
	}
	return b.String()
}

// limits returns text about which limit is reached first, and what to do then.
func limits(c costs) string {
	full := c.request(activePods)
	return fmt.Sprintf("\n## Where it ends\n\n"+
		"1. **Writes to the API server.** One like the measured, which shares its cores with everything else, is full at about %.0f such sandboxes; longer lives move that in proportion.\n"+
		"   Beyond it a fleet is several clusters. An ID does not say where it lives: what hands IDs out must remember it.\n"+
		"2. **Envoy's CPU with many upstream hosts.** %.0f active sandboxes at one gateway need %s cores for a request a second each. "+
		"More gateways cost less, if requests for a sandbox keep to one of them.\n"+
		"3. **Every gateway watches everything**: its memory and watch bytes grow with the fleet.\n"+
		"4. **The fence waits for all gateways**: the slowest decides when a released address may serve again. No request waits for it.\n",
		math.Floor(c.limit()/100)*100, activePods, number(activePods*rate*full.micros/1e6))
}
