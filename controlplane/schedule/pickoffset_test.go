package schedule

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// stocks are the views of one gateway for each pick offset on pods that none of them has
// touched yet.
func stocks(pods int, offsets ...float64) []*stock {
	var all []*stock
	for _, offset := range offsets {
		s := newStock(time.Minute, offset)
		for i := range pods {
			s.offer(idlePod("ns", fmt.Sprint("p", i)))
		}
		all = append(all, s)
	}
	return all
}

// clashes lets each gateway pick as often as asked, before any has seen what
// the others picked, and returns how many picks another had made too.
func clashes(t *testing.T, views []*stock, picks ...int) int {
	t.Helper()
	seen, twice := map[string]bool{}, 0
	for i, view := range views {
		for range picks[i] {
			rec := view.pick(nil)
			if rec == nil {
				t.Fatal("nothing left to pick")
			}
			if seen[rec.name] {
				twice++
			}
			seen[rec.name] = true
		}
	}
	return twice
}

func TestGatewaysShareAPoolByTheirPickOffsets(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pods  int
		picks []int
		most  int
	}{
		{"alone", 300, []int{300}, 0},
		{"two halves", 300, []int{150, 150}, 0},
		{"three thirds, nobody saw the others", 300, []int{100, 100, 100}, 1},
		{"more stock than requests", 300, []int{90, 60, 90}, 0},
		{"seven", 700, []int{50, 50, 50, 50, 50, 50, 50}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var offsets []float64
			for i := range tc.picks {
				offsets = append(offsets, pickOffset(i, len(tc.picks)))
			}
			if n := clashes(t, stocks(tc.pods, offsets...), tc.picks...); n > tc.most {
				t.Errorf("%d picks clashed, want at most %d", n, tc.most)
			}
		})
	}
}

// A gateway reaches every pod of its view, wherever it starts: stock that is nearer to
// other gateways is not out of its reach.
func TestEveryPickOffsetReachesAllStock(t *testing.T) {
	for _, offset := range []float64{pickOffset(0, 3), pickOffset(1, 3), pickOffset(2, 3), seedOffset(1), seedOffset(77)} {
		view := stocks(100, offset)[0]
		for i := range 100 {
			if view.pick(nil) == nil {
				t.Fatalf("a gateway that starts at %v finds nothing after %d of 100 pods", offset, i)
			}
		}
		if view.pick(nil) != nil || view.reserved() != 100 {
			t.Errorf("offset %v: %d reserved", offset, view.reserved())
		}
	}
}

// Before a gateway is told its pick offset, its seed spreads it.
func TestSeedsStartAtDifferentPods(t *testing.T) {
	picked := map[string]bool{}
	for seed := range uint64(4) {
		first := stocks(100, seedOffset(seed))[0].pick(nil).name
		if seed == 0 && first != "p0" {
			t.Errorf("seed 0 picks %s", first)
		}
		picked[first] = true
	}
	if len(picked) != 4 {
		t.Errorf("four gateways start at %v", picked)
	}
}

// A request that lost its pod knows that its view is old. It waits until the
// watch shows that loss, and so does not lose to all claims that came before it.
func TestRequestThatLostAPodLooksBeforeTheNext(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1", "p2", "p3", "p4")
		for _, name := range []string{"p1", "p2", "p3"} {
			r.api.change(name, func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning) })
		}
		q := r.ask(t, "a", time.Minute)
		waits(t, q)
		start := time.Now()
		pass(viewLag / 2)
		for _, name := range []string{"p3", "p2", "p1"} { // in the order of their claims
			r.Forget(r.api.pod(name).UID)
		}
		gets(t, q, "p4")
		if took := time.Since(start); took != viewLag/2 {
			t.Errorf("it waited %v", took)
		}
		for _, name := range []string{"p2", "p3"} {
			if n := r.api.count("claim " + name); n > 0 {
				t.Errorf("%s was tried %d times", name, n)
			}
		}
	})
}

// SetPickOffset reaches the schedulers that exist and those to come.
func TestSetTellsPickOffsets(t *testing.T) {
	s := NewSet(newFakeAPI(), WithSeed(5))
	t.Cleanup(s.Shutdown)
	s.PoolChanged("ns", "one", true)
	offset := func(pool string) float64 {
		one, _ := s.Get("ns", pool)
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.stock.pickOffset
	}
	if got := offset("one"); got != seedOffset(5) {
		t.Errorf("starts at %v before it is told its pick offset", got)
	}
	s.SetPickOffset(1, 3)
	s.PoolChanged("ns", "two", true)
	for _, pool := range []string{"one", "two"} {
		if got := offset(pool); got != 0.5 {
			t.Errorf("pool %s starts at %v, want in the middle", pool, got)
		}
	}
	s.SetPickOffset(0, 1)
	if got := offset("two"); got != 0 {
		t.Errorf("the only gateway starts at %v", got)
	}
}
