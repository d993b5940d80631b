package schedule

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/bubble"
)

// server is an API server whose claims take a time each; busy is how many are under way.
type server struct {
	mu         sync.Mutex
	busy, most int
	throttled  int
	takes      func(busy int) time.Duration // 0: 429
}

func (s *server) answer(call string, apply func() error) error {
	s.mu.Lock()
	s.busy++
	s.most = max(s.most, s.busy)
	takes := s.takes(s.busy)
	if takes == 0 {
		s.throttled++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}()
	if takes == 0 {
		return apierrors.NewTooManyRequests("later", 1)
	}
	time.Sleep(takes)
	return apply()
}

// claimAll claims as many pods at once, and returns how long that takes.
func (r *rig) claimAll(t *testing.T, name string, n int) time.Duration {
	t.Helper()
	for i := range n {
		r.stockUp(fmt.Sprint(name, i))
	}
	begun := time.Now()
	var all []*ClaimRequest
	for i := range n {
		all = append(all, r.ask(t, fmt.Sprint(name, i), time.Minute))
	}
	for _, q := range all {
		res := <-resultsOf(q)
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		r.Forget(res.Pod.UID)
	}
	return time.Since(begun)
}

// Claims under way follow the latency of the API server: more at one that is slow and takes
// more at once, no more at one that is quick or serves them one after the other.
func TestClaimsFollowTheAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		takes    func(busy int) time.Duration
		most     int
		longest  time.Duration
		throttle bool
	}{
		// With 12 at a time they took ten rounds of 100 ms.
		"slow":       {takes: func(int) time.Duration { return 100 * time.Millisecond }, most: 96, longest: 400 * time.Millisecond},
		"quick":      {takes: func(int) time.Duration { return 5 * time.Millisecond }, most: firstClaims, longest: 60 * time.Millisecond},
		"one by one": {takes: func(busy int) time.Duration { return time.Duration(busy) * 20 * time.Millisecond }, most: firstClaims + 1, longest: 3 * time.Second},
		"throttles": {takes: func(busy int) time.Duration {
			if busy > 20 {
				return 0
			}
			return 100 * time.Millisecond
		}, most: 48, longest: 10 * time.Second, throttle: true},
	} {
		t.Run(name, func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				s := &server{takes: tc.takes}
				r.api.answers(s.answer)
				took := r.claimAll(t, "a", 120)
				if s.most > tc.most || took > tc.longest || s.throttled > 0 != tc.throttle {
					t.Errorf("120 claims take %v, at most %d at once, %d throttled", took, s.most, s.throttled)
				}
				throttled := s.throttled
				if took = r.claimAll(t, "b", 120); took > tc.longest || s.throttled-throttled > 120 {
					t.Errorf("120 more take %v, %d throttled", took, s.throttled-throttled)
				}
			})
		})
	}
}

// However slow the API server is, a scheduler has a bounded number of claims under way, and
// so have all of a gateway together; each pool has its first ones.
func TestClaimsOfAllPoolsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		s := &server{takes: func(int) time.Duration { return 100 * time.Millisecond }}
		api.answers(s.answer)
		set := NewSet(api)
		defer set.Shutdown()
		const pools, claims = 3, 400
		var all []*ClaimRequest
		for p := range pools {
			pool := fmt.Sprint("pool", p)
			set.PoolChanged("ns", pool, true)
			one, _ := set.Get("ns", pool)
			for i := range claims {
				one.Offer(api.idle(fmt.Sprint(pool, "-", i)))
				q := &ClaimRequest{SandboxID: fmt.Sprint(pool, i), Deadline: time.Now().Add(time.Minute), ResultCh: newResults(1)}
				if !one.Enqueue(q) {
					t.Fatal("refused")
				}
				all = append(all, q)
			}
		}
		for _, q := range all {
			if res := <-resultsOf(q); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		if most := pools*firstClaims + mostClaims - firstClaims; s.most > most+pools || s.most < mostClaims {
			t.Errorf("%d claims at once, want at most %d", s.most, most)
		}
		synctest.Wait()
		one, _ := set.Get("ns", "pool0")
		if one.room.window.limit != mostClaims || one.room.beyond != 0 {
			t.Errorf("the limit is %d, and %d claims count though none is under way", one.room.window.limit, one.room.beyond)
		}
	})
}

// An API server that was quick and has become slow is measured anew, and so is one that was
// slow because others used it.
func TestLatencyIsMeasuredAnew(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		takes := 5 * time.Millisecond
		s := &server{takes: func(int) time.Duration { return takes }}
		r.api.answers(s.answer)
		r.claimAll(t, "quick", 120)
		takes = 100 * time.Millisecond
		if r.claimAll(t, "slow", 120); s.most != firstClaims {
			t.Errorf("%d claims at once at an API server that is slower than it can be", s.most)
		}
		time.Sleep(measuredFor)
		if took := r.claimAll(t, "anew", 120); took > 400*time.Millisecond {
			t.Errorf("120 claims take %v at an API server that is slow for longer", took)
		}
		time.Sleep(measuredFor)
		takes, s.most = 5*time.Millisecond, 0
		if r.claimAll(t, "quick again", 120); s.most > firstClaims+1 {
			t.Errorf("%d claims at once at an API server that is quick again", s.most)
		}
	})
}

// Each answer of the API server and what it does to the limit.
func TestWindow(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	ok, throttled, lost := writes.Applied, writes.Throttled, writes.Ambiguous
	for name, tc := range map[string]struct {
		limit, shortest int
		w               write
		want            int
	}{
		"as quick as ever":          {40, 100, write{at(200), at(310), ok, true}, 41},
		"nobody waits":              {40, 100, write{at(200), at(310), ok, false}, 40},
		"quick writes":              {12, 5, write{at(200), at(205), ok, true}, 12},
		"rather slow":               {40, 100, write{at(200), at(380), ok, true}, 40},
		"a queue":                   {40, 100, write{at(200), at(410), ok, true}, 35},
		"a queue, with the least":   {13, 100, write{at(200), at(900), ok, true}, 12},
		"throttled":                 {40, 100, write{at(200), at(210), throttled, true}, 20},
		"throttled again and again": {2, 100, write{at(200), at(210), throttled, true}, 2},
		"not answered":              {40, 100, write{at(200), at(2200), lost, true}, 20},
		"it recovers":               {5, 5, write{at(200), at(205), ok, false}, 6},
		"not more than the most":    {mostClaims, 100, write{at(200), at(300), ok, true}, mostClaims},
		"sent before the last cut":  {40, 100, write{at(90), at(400), throttled, true}, 40},
	} {
		p := window{limit: tc.limit, shortest: time.Duration(tc.shortest) * time.Millisecond, measured: at(0), cut: at(100)}
		if p.learn(tc.w); p.limit != tc.want {
			t.Errorf("%s: the limit is %d, want %d", name, p.limit, tc.want)
		}
	}
	w := window{limit: 40, shortest: 5 * time.Millisecond, measured: at(0)}
	if w.renew(at(59_999)); w.limit != 40 {
		t.Errorf("the limit is %d just before it is measured anew", w.limit)
	}
	w.renew(at(60_000))
	if w.learn(write{at(60_000), at(60_100), ok, true}); w.limit != firstClaims+1 {
		t.Errorf("the limit is %d after the first write of a new measurement", w.limit)
	}
}

// A request whose turn does not come says so: a pool that has idle pods needs no more of them.
func TestDeadlineSaysThatPodsAreIdle(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		s := &server{takes: func(int) time.Duration { return 2 * time.Second }}
		r.api.answers(s.answer)
		for i := range firstClaims + 1 {
			r.stockUp(fmt.Sprint("p", i))
		}
		for i := range firstClaims {
			r.ask(t, fmt.Sprint("a", i), time.Minute)
		}
		late := r.ask(t, "late", time.Second)
		pass(time.Second)
		if err := result(t, late).Err; !errors.Is(err, ErrDeadline) || !strings.Contains(err.Error(), "there are idle pods") {
			t.Errorf("it is told %v", err)
		}
	})
}
