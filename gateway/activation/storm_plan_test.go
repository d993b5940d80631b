package activation

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/faults"
	"github.com/sandlane/sandlane/test/kubetest"
)

const (
	stormFew      = 150  // sandboxes of a run in `make test`
	stormMany     = 2000 // and of one with SANDLANE_STORM=full, as in `make test-all`
	stormGateways = 3
	// stormAtOnce is how many sandboxes are asked for at a time: no more than the
	// gateways have claims under way, or a hurried request only waits for its turn and
	// never meets a fault. While so many writes fail, that is the least that package
	// schedule allows each gateway, two.
	stormAtOnce = 2 * stormGateways
	// Some requests have a deadline before a held fault lets their write go.
	hurried = 500 * time.Millisecond
	patient = time.Minute
	held    = time.Second
	// stormLate is how late an answer may be: lateGrace, and a busy machine.
	stormLate = lateGrace + 2*time.Second
)

// plan is a storm before it blows.
type plan struct {
	seed   uint64
	claims int
	enough int // how often each fault must have had each outcome; a small storm has too few for all
	asks   [][]*ask
}

// ask is one request: when it was made, at which gateway, and how it ended.
type ask struct {
	id       string
	isNew    bool
	gateway  int
	patience time.Duration
	from, to time.Time
	err      error
	answers  int
	podUID   string // of the route that it left, if it was still there
}

// newPlan reads SANDLANE_STORM and SANDLANE_SEED. Most sandboxes are new, and one
// in four exists without a pod.
func newPlan(t *testing.T) *plan {
	p := &plan{seed: 1, claims: stormFew}
	switch size := os.Getenv("SANDLANE_STORM"); size {
	case "":
	case "full":
		p.claims, p.enough = stormMany, 20
	default:
		t.Fatalf("SANDLANE_STORM=%s: want full, or nothing", size)
	}
	if v := os.Getenv("SANDLANE_SEED"); v != "" {
		var err error
		if p.seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("SANDLANE_SEED: %v", err)
		}
	}
	rnd := rand.New(rand.NewPCG(p.seed, 0))
	prefix := kubetest.Name("storm")
	for i := range p.claims {
		var asks []*ask
		first, several := rnd.IntN(stormGateways), 1+rnd.IntN(stormGateways)
		for n := range several {
			a := &ask{id: fmt.Sprintf("%s-%d", prefix, i), isNew: i%4 != 0, gateway: (first + n) % stormGateways, patience: patient}
			if rnd.IntN(2) == 0 || n == 0 && outwaited(i) {
				a.patience = hurried
			}
			asks = append(asks, a)
		}
		p.asks = append(p.asks, asks)
	}
	return p
}

// outwaited reports whether a fault holds each gateway's first write for the sandbox with
// this number longer than its request waits. Otherwise too few requests would give up while
// a fault holds their write.
func outwaited(i int) bool { return i%3 == 0 }

// stopped reports whether each gateway's first claim for the sandbox is lost and the stop of
// its pod meets a fault: chance alone gives too few of these.
func stopped(i int) bool { return i%3 == 1 }

// claimStruck reports whether each gateway's first claim for the sandbox meets a fault. Other
// claims meet faults by chance, which in some runs leaves a fault without any claim.
func claimStruck(i int) bool { return i%3 == 2 }

// chances are how often other writes meet a fault: rare kinds of writes more often, so that
// each fault meets enough of them.
var chances = map[faults.Kind]float64{
	faults.Create: 0.35, faults.Bind: 0.4, faults.Unbind: 0.5, faults.Claim: 0.35, faults.Stop: 0.5,
}

// faults are what a gateway's writes meet.
func (p *plan) faults(gateway int) faults.Plan {
	random := faults.Random(p.seed+uint64(gateway)<<32, chances, held)
	all := faults.All()
	return func(w faults.Write) faults.Decision {
		// The number alone: the prefix differs in each run, and a seed gives the same faults.
		w.Sandbox = w.Sandbox[strings.LastIndexByte(w.Sandbox, '-')+1:]
		i, err := strconv.Atoi(w.Sandbox)
		if err != nil || w.Nth > 0 {
			return random(w)
		}
		turn := all[i/3%len(all)] // every fault alike
		switch {
		case outwaited(i) && (w.Kind == faults.Create || w.Kind == faults.Bind):
			return faults.Decision{Fault: turn, Hold: held}
		case stopped(i) && w.Kind == faults.Claim:
			return faults.Decision{Fault: faults.ResetBefore}
		case stopped(i) && w.Kind == faults.Stop, claimStruck(i) && w.Kind == faults.Claim:
			return faults.Decision{Fault: turn}
		}
		return random(w)
	}
}
