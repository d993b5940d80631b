package schedule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sandlane/sandlane/test/bubble"
)

func TestSet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api, reg := newFakeAPI(), prometheus.NewRegistry()
		set := NewSet(api, WithMetrics(NewMetrics(reg)))
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- set.Start(ctx) }()

		set.Offer(api.idle("p1")) // seen before its pool
		if _, ok := set.Get("ns", "pool"); ok {
			t.Error("a pool that was not seen is found")
		}
		set.PoolChanged("ns", "pool", true)
		set.PoolChanged("ns", "pool", true) // again
		s, ok := set.Get("ns", "pool")
		if !ok {
			t.Fatal("no scheduler for the pool")
		}
		ask := func() *ClaimRequest {
			q := &ClaimRequest{SandboxID: "a", Deadline: time.Now().Add(time.Hour), ResultCh: newResults(1)}
			if !s.Enqueue(q) {
				t.Fatal("not accepted")
			}
			return q
		}
		gets(t, ask(), "p1")
		set.Offer(api.idle("p2"))
		set.Forget("ns", "pool", "uid-p2")
		set.Forget("ns", "none", "uid-p2")
		waiting := ask()
		waits(t, waiting)
		if n, err := testutil.GatherAndCount(reg, "sandlane_schedule_waiting_requests"); n != 1 || err != nil {
			t.Errorf("%d pools have gauges (%v)", n, err)
		}

		set.PoolChanged("ns", "pool", false)
		fails(t, waiting, ErrPoolGone)
		if _, ok := set.Get("ns", "pool"); ok {
			t.Error("a pool that is gone is found")
		}
		if n, _ := testutil.GatherAndCount(reg, "sandlane_schedule_waiting_requests"); n != 0 {
			t.Error("a pool that is gone has gauges")
		}
		set.PoolChanged("ns", "pool", true)
		if again, ok := set.Get("ns", "pool"); !ok || again == s {
			t.Error("a pool that came back has no scheduler of its own")
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		set.PoolChanged("ns", "late", true)
		if _, ok := set.Get("ns", "late"); ok {
			t.Error("a set that is shut down takes on a pool")
		}
	})
}

// A scheduler that is made for the pods of a pool that is gone, or not seen yet,
// goes with the last of them; a pool's own stays without any.
func TestSetKeepsNoSchedulerForNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api, reg := newFakeAPI(), prometheus.NewRegistry()
		set := NewSet(api, WithMetrics(NewMetrics(reg)))
		has := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			n, err := testutil.GatherAndCount(reg, "sandlane_schedule_waiting_requests")
			if err != nil || n != want || len(set.pools) != want {
				t.Errorf("%s: %d schedulers, %d with gauges (%v), want %d", what, len(set.pools), n, err, want)
			}
		}
		p1, p2 := api.idle("p1"), api.idle("p2")
		set.PoolChanged("ns", "pool", true)
		set.Offer(p1)
		set.PoolChanged("ns", "pool", false)
		has("the pool is gone", 0)
		set.Offer(p1)
		set.Offer(p2) // the watch of pods is behind that of pools
		has("its pods are still there", 1)
		set.Forget("ns", "pool", p1.UID)
		has("one is still there", 1)
		set.Forget("ns", "pool", p2.UID)
		has("all are gone", 0)
		set.Forget("ns", "pool", p2.UID)
		p1.Status.PodIP = ""
		set.Offer(p1)
		has("a pod that is no stock", 0)

		set.Offer(p2)
		set.PoolChanged("ns", "pool", true)
		set.Forget("ns", "pool", p2.UID)
		has("a pool that exists, without pods", 1)
		if _, ok := set.Get("ns", "pool"); !ok {
			t.Error("the pool is not found")
		}
		set.Shutdown()
		set.Offer(p2) // does nothing
	})
}

// A pool that is made anew at once has its own series: the scheduler that ends late
// takes none of them.
func TestMetricsOfAPoolMadeAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api, reg := newFakeAPI(), prometheus.NewRegistry()
		set := NewSet(api, WithMetrics(NewMetrics(reg)))
		set.PoolChanged("ns", "pool", true)
		synctest.Wait()
		set.PoolChanged("ns", "pool", false)
		set.PoolChanged("ns", "pool", true)
		synctest.Wait()
		for metric, want := range map[string]int{
			"sandlane_schedule_waiting_requests": 1, "sandlane_schedule_ready_pods": 1, "sandlane_schedule_claims_total": 4,
		} {
			if n, err := testutil.GatherAndCount(reg, metric); n != want || err != nil {
				t.Errorf("%d series of %s (%v), want %d", n, metric, err, want)
			}
		}
		set.Shutdown()
		if n, err := testutil.GatherAndCount(reg, "sandlane_schedule_claims_total"); n != 0 || err != nil {
			t.Errorf("%d series are left after the shutdown (%v)", n, err)
		}
	})
}

func TestMetricsLint(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	p := m.of("ns", "pool")
	p.outcome(outcomeSuccess)
	p.sizes(1, 2, 3)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
