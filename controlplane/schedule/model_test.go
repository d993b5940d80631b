package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"pgregory.net/rapid"
)

// command is one step of the model. Which sandbox, pod or scheduler it is about
// is drawn as a number and taken modulo how many there are.
type command struct {
	Op   string
	A, B int
}

// weighted is how often a command is drawn among the others.
type weighted struct {
	op     string
	weight int
}

func commands(ops []weighted) *rapid.Generator[command] {
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

// enough is how often.
const enough = 20

func newTally() *tally { return &tally{counts: map[string]map[string]int{}} }

// missing says what has not been met often enough.
func (c *tally) missing(steps int, required ...map[string][]string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, some := range required {
		for f, outcomes := range some {
			for _, o := range outcomes {
				if n := c.counts[f][o]; n < enough {
					all = append(all, fmt.Sprintf("%q met %q %d times only", f, o, n))
				}
			}
		}
	}
	if c.steps < steps {
		all = append(all, fmt.Sprintf("%d steps are too few", c.steps))
	}
	slices.Sort(all)
	return all
}

// String is the table.
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := &strings.Builder{}
	fmt.Fprintf(text, "%d steps; how often a request that met the fault came to the outcome:\n", c.steps)
	for _, f := range slices.Sorted(maps.Keys(c.counts)) {
		var outcomes []string
		for o, n := range c.counts[f] {
			outcomes = append(outcomes, fmt.Sprintf("%s %d", o, n))
		}
		slices.Sort(outcomes)
		fmt.Fprintf(text, "%-36s %s\n", f, strings.Join(outcomes, ", "))
	}
	return text.String()
}

// plan is what happens in one run, and what befalls the calls in their order.
type plan struct {
	commands []command
	faults   []int
}

func plans(ops []weighted, least, most int) *rapid.Generator[plan] {
	return rapid.Custom(func(t *rapid.T) plan {
		return plan{
			rapid.SliceOfN(commands(ops), least, most).Draw(t, "commands"),
			rapid.SliceOfN(rapid.IntRange(0, 2*len(callFaults)), 10, 2*most).Draw(t, "faults"),
		}
	})
}

// run carries the plan out, and returns which invariants it broke.
func (p plan) run(w world, total *tally) (broken []string) {
	m := newModel(w, p.faults, total)
	for i, c := range p.commands {
		m.step(c)
		m.pause()
		m.invariants()
		if len(m.whatBroke()) > 0 {
			m.breakf("after step %d, %+v", i, c)
			break
		}
	}
	m.finish()
	total.mu.Lock()
	total.steps += len(p.commands)
	total.mu.Unlock()
	return m.whatBroke()
}
