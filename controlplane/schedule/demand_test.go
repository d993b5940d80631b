package schedule

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/test/bubble"
)

// hashes are those of the IDs, sorted.
func hashes(ids ...string) []uint64 {
	var all []uint64
	for _, id := range ids {
		all = append(all, HashID(id))
	}
	slices.Sort(all)
	return all
}

func TestSetSaysWhatWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		set := NewSet(api)
		defer set.Shutdown()
		set.PoolChanged("ns", "pool", true)
		set.PoolChanged("ns", "other", true)
		s, _ := set.Get("ns", "pool")
		ask := func(id, tenant string) *ClaimRequest {
			q := &ClaimRequest{SandboxID: id, Tenant: tenant, Deadline: time.Now().Add(time.Hour), ResultCh: newResults(1)}
			if !s.Enqueue(q) {
				t.Fatal("not accepted")
			}
			synctest.Wait()
			return q
		}
		want := func(when string, oldest time.Duration, ids ...string) {
			t.Helper()
			all := set.Waiting()
			w, waits := all[types.NamespacedName{Namespace: "ns", Name: "pool"}]
			slices.Sort(w.IDs)
			if !slices.Equal(w.IDs, hashes(ids...)) || waits != (len(ids) > 0) || len(all) > 1 {
				t.Errorf("%s: %v, want the hashes of %v", when, all, ids)
			}
			if waits && time.Since(w.Oldest) != oldest {
				t.Errorf("%s: the oldest waits for %v, want %v", when, time.Since(w.Oldest), oldest)
			}
		}
		want("nobody asked", 0)
		first := ask("a", "")
		time.Sleep(time.Second)
		ask("b", "tenant")
		ask("a", "tenant")
		want("one of them twice", time.Second, "a", "b")
		set.Offer(api.idle("p1"))
		gets(t, first, "p1")
		want("the other request of the first one waits on", 0, "a", "b")
		set.Offer(api.idle("p2"))
		set.Offer(api.idle("p3"))
		synctest.Wait()
		want("all are served", 0)
	})
}

// A claim that is under way has its pod: it needs no other.
func TestAClaimUnderWayDoesNotWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		answer := make(chan struct{})
		api.fault = func(_ string, apply func() error) error { <-answer; return apply() }
		set := NewSet(api)
		defer set.Shutdown()
		set.PoolChanged("ns", "pool", true)
		s, _ := set.Get("ns", "pool")
		set.Offer(api.idle("p1"))
		for i := range 2 {
			s.Enqueue(&ClaimRequest{SandboxID: fmt.Sprint(i), Deadline: time.Now().Add(time.Hour), ResultCh: make(chan ClaimResult, 1)})
		}
		synctest.Wait()
		w := set.Waiting()[types.NamespacedName{Namespace: "ns", Name: "pool"}]
		if !slices.Equal(w.IDs, hashes("1")) {
			t.Errorf("waiting %v, want the second one alone", w.IDs)
		}
		close(answer)
	})
}
