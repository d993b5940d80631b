package schedule

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// command is one step of the model. Which sandbox, pod or scheduler it is about
// is drawn as a number and taken modulo how many there are.
type command struct {
	Op   string
	A, B int
}

// ops are the commands with their weights.
var ops = []struct {
	op     string
	weight int
}{
	{"claim", 12}, {"refill", 10}, {"cancel", 3}, {"end", 3}, {"delete pod", 3}, {"follow", 4},
	{"crash", 1}, {"deliver", 16}, {"drop watch", 3}, {"wait", 5}, {"busy", 1},
}

func commands() *rapid.Generator[command] {
	var names []string
	for _, o := range ops {
		names = append(names, slices.Repeat([]string{o.op}, o.weight)...)
	}
	return rapid.Custom(func(t *rapid.T) command {
		return command{rapid.SampledFrom(names).Draw(t, "op"), rapid.IntRange(0, 99).Draw(t, "a"), rapid.IntRange(0, 99).Draw(t, "b")}
	})
}

// tally counts, over all runs, how often each fault met each outcome of a
// request.
type tally struct {
	mu     sync.Mutex
	steps  int
	counts map[string]map[string]int // by fault, by outcome
}

func (c *tally) add(fault, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[fault] == nil {
		c.counts[fault] = map[string]int{}
	}
	c.counts[fault][outcome]++
}

// required are the outcomes that each fault must have met often enough for a
// green run to mean something. The others are printed.
var required = map[string][]string{
	"lost, never applied":               {"served"},
	"lost, applied before":              {"served"},
	"lost, applied after the answer":    {"served"},
	"lost, applied after the next read": {"served"},
	"500, not applied":                  {"served"},
	"500, applied":                      {"served"},
	"409":                               {"served"},
	"422, a test failed":                {"served"},
	"422, invalid":                      {"invalid"},
	"403":                               {"forbidden"},
	"429":                               {"served", "deadline"},
	"not sent":                          {"served", "deadline"},
	"slow":                              {"served", "deadline"},
	"client left":                       {"cancelled", "served"},
	"scheduler crashed":                 {"died with it"},
	"watch dropped":                     {"served"},
	"watch behind":                      {"served"},
	"sandbox ended":                     {"bind lost"},
	"pod deleted":                       {"served"},
	"a follower claimed":                {"served"},
	"API server busy":                   {"served"},
	"none":                              {"served", "deadline"},
}

const (
	enough = 20
	// rounds of rapid's checks, each of which begins with small plans.
	rounds = 8
)

func (c *tally) judge(t *testing.T) {
	t.Helper()
	var faults []string
	for f := range c.counts {
		faults = append(faults, f)
	}
	slices.Sort(faults)
	text := &strings.Builder{}
	for _, f := range faults {
		var outcomes []string
		for o, n := range c.counts[f] {
			outcomes = append(outcomes, fmt.Sprintf("%s %d", o, n))
		}
		slices.Sort(outcomes)
		fmt.Fprintf(text, "%-36s %s\n", f, strings.Join(outcomes, ", "))
	}
	t.Logf("%d steps; how often a request that met the fault came to the outcome:\n%s", c.steps, text)
	for f, outcomes := range required {
		for _, o := range outcomes {
			if n := c.counts[f][o]; n < enough {
				t.Errorf("%q met %q %d times only", f, o, n)
			}
		}
	}
	if c.steps < 5000 {
		t.Errorf("%d steps are too few", c.steps)
	}
}

// Whatever happens in whatever order: one pod for a sandbox and one sandbox for a
// pod, one answer for a request and that in time, no pod for who has left, and
// nothing lost for good.
func TestModel(t *testing.T) {
	total := &tally{counts: map[string]map[string]int{}}
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) { modelRun(t, rt, total) })
		if t.Failed() {
			return
		}
	}
	total.judge(t)
}

func modelRun(t *testing.T, rt *rapid.T, total *tally) {
	plan := rapid.SliceOfN(commands(), 20, 120).Draw(rt, "commands")
	faults := rapid.SliceOfN(rapid.IntRange(0, 2*len(callFaults)), 10, 200).Draw(rt, "faults")
	var broken []string
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, faults, total)
		for i, c := range plan {
			m.step(c)
			synctest.Wait()
			m.invariants()
			if len(m.broken) > 0 {
				m.breakf("after step %d, %+v", i, c)
				break
			}
		}
		m.finish()
		broken = m.broken
	})
	total.mu.Lock()
	total.steps += len(plan)
	total.mu.Unlock()
	if len(broken) > 0 {
		rt.Fatalf("%s", strings.Join(broken, "\n"))
	}
}
