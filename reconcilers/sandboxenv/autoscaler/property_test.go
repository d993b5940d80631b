package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// anyPolicy, anyGroup: random, senseless ones among them.
func anyPolicy(r *rand.Rand) Policy {
	d := func(most int) time.Duration { return time.Duration(r.IntN(most+1)) * time.Second }
	return Policy{
		Mode:     []v1alpha1.ScaleUpMode{v1alpha1.ScaleUpDefault, v1alpha1.ScaleUpConservative, v1alpha1.ScaleUpAggressive, ""}[r.IntN(4)],
		Cooldown: d(60), IdleThreshold: d(60), QuietWindow: d(300), SaturationCooldown: d(120), IdleTimeout: d(300), Stabilization: d(120),
	}
}

func anyBound(r *rand.Rand, most int) int {
	if r.IntN(3) == 0 {
		return -1
	}
	return r.IntN(most + 1)
}

// world is a group under simulation: pods start late, snapshots lag, polls get lost,
// and clocks step.
type world struct {
	r     *rand.Rand
	s     Snapshot
	pods  []pods
	shown []Snapshot // older ones, the newest last
	skew  time.Duration
}

// pods are a member's, by state: ages of idle ones, and when the warming ones turn idle.
type pods struct {
	claimed, waiting int
	idle             []time.Time
	warming          []time.Time
}

func newWorld(r *rand.Rand, steps func(*rand.Rand) Policy) *world {
	w := &world{r: r, s: Snapshot{Now: t0, Enabled: true, Known: true, Policy: steps(r), Min: r.IntN(6), Max: anyBound(r, 60)}}
	for i := range 1 + r.IntN(4) {
		lo := r.IntN(4)
		w.s.Members = append(w.s.Members, Member{
			Name: fmt.Sprint("m", i), Replicas: r.IntN(20), Min: lo, Max: anyBound(r, 40), UpPriority: r.IntN(3), DownPriority: r.IntN(3),
		})
		w.pods = append(w.pods, pods{})
	}
	return w
}

// tick lets time pass, pods start and claims come and go; demand < 0 is random.
func (w *world) tick(demand int) {
	w.s.Now = w.s.Now.Add(time.Second)
	for i := range w.s.Members {
		p, m := &w.pods[i], &w.s.Members[i]
		if demand < 0 {
			switch w.r.IntN(6) {
			case 0:
				p.waiting += w.r.IntN(10)
				m.LastCreate = w.s.Now
			case 1:
				p.claimed -= w.r.IntN(p.claimed + 1)
			case 2:
				m.Short = []string{"", "", "no node has room"}[w.r.IntN(3)]
			}
		} else {
			p.waiting += max(demand-p.claimed-p.waiting, 0)
		}
		p.warming = slices.DeleteFunc(p.warming, func(at time.Time) bool {
			if at.After(w.s.Now) {
				return false
			}
			p.idle = append(p.idle, w.s.Now)
			return true
		})
		for p.waiting > 0 && len(p.idle) > 0 {
			p.idle, p.waiting, p.claimed = p.idle[1:], p.waiting-1, p.claimed+1
		}
		for len(p.idle)+len(p.warming) < m.Replicas+p.waiting {
			p.warming = append(p.warming, w.s.Now.Add(time.Duration(1+w.r.IntN(8))*time.Second))
		}
		if over := len(p.idle) + len(p.warming) - m.Replicas - p.waiting; over > 0 {
			p.idle = p.idle[min(over, len(p.idle)):]
		}
		m.Claimed, m.Waiting, m.Idle, m.LongIdle = p.claimed, p.waiting, len(p.idle), 0
		for _, since := range p.idle {
			if w.s.Now.Sub(since) > w.s.Policy.IdleTimeout {
				m.LongIdle++
			}
		}
	}
}

// look is what a controller sees: perhaps something older, by a clock that steps. The
// env's replicas and the bookkeeping are always the last ones: writing them tests that.
func (w *world) look() Snapshot {
	now := w.s
	now.Members = slices.Clone(w.s.Members)
	now.Known = w.r.IntN(5) > 0
	w.shown = append(w.shown, now)
	if len(w.shown) > 5 {
		w.shown = w.shown[1:]
	}
	seen := w.shown[w.r.IntN(len(w.shown))]
	seen.Members = slices.Clone(seen.Members)
	for i := range seen.Members {
		seen.Members[i].Replicas, seen.Members[i].State = w.s.Members[i].Replicas, w.s.Members[i].State
	}
	if w.r.IntN(200) == 0 {
		w.skew = []time.Duration{-time.Hour, 0, time.Hour}[w.r.IntN(3)]
	}
	seen.Now = seen.Now.Add(w.skew)
	return seen
}

func (w *world) apply(d Decision) {
	for i := range d.Members {
		w.s.Members[i].Replicas, w.s.Members[i].State = d.Members[i].Replicas, d.Members[i].State
	}
}

// bounds returns what is wrong with a decision; empty if nothing is.
func bounds(s Snapshot, d Decision) string {
	sum, least, most := 0, 0, 0
	for i, m := range d.Members {
		of := s.Members[i]
		sum, least, most = sum+m.Replicas, least+max(of.Min, 0), most+of.most()
		switch {
		case m.Replicas < 0:
			return fmt.Sprintf("%s has %d replicas", m.Name, m.Replicas)
		case of.Max >= 0 && m.Replicas > of.Max:
			return fmt.Sprintf("%s has %d replicas, and its maximum is %d", m.Name, m.Replicas, of.Max)
		case m.Reason == ReasonDemand && of.Replicas > 0 && m.Replicas > max(2*max(of.Replicas, of.Min), 1) && m.Replicas > of.Min && s.Min == 0:
			return fmt.Sprintf("%s grew from %d to %d in one step", m.Name, of.Replicas, m.Replicas)
		}
	}
	if s.Max >= 0 && sum > s.Max {
		return fmt.Sprintf("%d replicas in all, and the group's maximum is %d", sum, s.Max)
	}
	if want := min(s.Min, most); sum < want && (s.Max < 0 || s.Max >= want) {
		return fmt.Sprintf("%d replicas in all, and the group's minimum is %d", sum, s.Min)
	}
	return ""
}

// stepsOfAll is how many steps all simulated groups take together: a million with
// SANDLANE_MODEL=full, as in `make test-all`.
func stepsOfAll() uint64 {
	if os.Getenv("SANDLANE_MODEL") == "full" {
		return 1_000_000
	}
	return 40_000
}

// Whatever happens, the bounds hold.
func TestBoundsHold(t *testing.T) {
	steps := stepsOfAll()
	for worker := range 4 {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(worker); seed < steps/500; seed += 4 {
				w := newWorld(rand.New(rand.NewPCG(seed, 1)), anyPolicy)
				for n := range 500 {
					w.tick(-1)
					s := w.look()
					d := Decide(s)
					if wrong := bounds(s, d); wrong != "" {
						t.Fatalf("seed %d, step %d: %s\n%+v\n%+v", seed, n, wrong, s, d)
					}
					w.apply(d)
				}
			}
		})
	}
}

// At a constant demand the replicas settle within ten decisions that change them, and
// then never change again.
func TestConstantDemandSettles(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(r, func(r *rand.Rand) Policy { return policy(anyPolicy(r).Mode) })
		w.s.Members = w.s.Members[:1]
		w.s.Members[0].Replicas = r.IntN(9) // Conservative gives up one at a time
		demand, changes, still := r.IntN(60), 0, 0
		for n := range 20_000 {
			w.tick(demand)
			w.s.Members[0].LastCreate = w.s.Now // users come and go, as many as before
			before := w.s.Members[0].Replicas
			w.apply(Decide(w.s))
			if still++; w.s.Members[0].Replicas != before {
				changes, still = changes+1, 0
			}
			if changes > 10 {
				t.Fatalf("seed %d: the replicas changed for the eleventh time after %d s, demand %d, to %d", seed, n, demand, w.s.Members[0].Replicas)
			}
			if still > 1000 {
				break
			}
		}
		if still <= 1000 {
			t.Errorf("seed %d: the replicas still change", seed)
		}
	}
}

// The same unmet demand, looked at again and again, orders nothing more once it has
// been ordered for.
func TestNothingCompounds(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := one(Member{Replicas: r.IntN(10), Claimed: r.IntN(40), Waiting: r.IntN(40)})
		s.Policy = policy(anyPolicy(r).Mode)
		m := &s.Members[0]
		m.State.IdleZeroSince = t0.Add(-time.Hour)
		g := group{s: s, next: []MemberDecision{{}}}
		most := max(m.Replicas, g.buffer(*m), 2*m.Replicas, 1)
		for range 100 {
			s.Now = s.Now.Add(10 * time.Second)
			m.LastCreate = s.Now // those that are not served ask again
			d := Decide(s).Members[0]
			m.Replicas, m.State = d.Replicas, d.State
		}
		if ceiling := max(most, g.ceiling(*m)); m.Replicas > ceiling {
			t.Errorf("seed %d: %d replicas, more than %d", seed, m.Replicas, ceiling)
		}
	}
}

// More claims that wait never lead to fewer replicas.
func TestMonotoneInWaiting(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := newWorld(r, anyPolicy)
		for range 3 {
			w.tick(-1)
		}
		for i := range w.s.Members {
			if m := &w.s.Members[i]; r.IntN(2) == 0 { // ripe for a proactive step
				m.Replicas, m.Idle, m.Claimed = r.IntN(5), 0, r.IntN(30)
				m.LastCreate, m.State.IdleZeroSince = w.s.Now, w.s.Now.Add(-time.Hour)
			}
		}
		s := w.look()
		few := Decide(s)
		more := s
		more.Members = slices.Clone(s.Members)
		i := r.IntN(len(more.Members))
		more.Members[i].Waiting += 1 + r.IntN(20)
		if a, b := few.Members[i].Replicas, Decide(more).Members[i].Replicas; b < a {
			t.Fatalf("seed %d: %d replicas, and %d with more that wait\n%+v", seed, a, b, s)
		}
	}
}

// Switched off, nothing is written.
func TestDisabledWritesNothing(t *testing.T) {
	for seed := range uint64(5000) {
		w := newWorld(rand.New(rand.NewPCG(seed, 5)), anyPolicy)
		w.tick(-1)
		w.s.Enabled = false
		for i, d := range Decide(w.look()).Members {
			if d.Replicas != w.s.Members[i].Replicas || d.Reason != "" {
				t.Fatalf("seed %d: %+v", seed, d)
			}
		}
	}
}
