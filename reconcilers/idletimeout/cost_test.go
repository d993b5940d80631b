package idletimeout

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// rememberedUses is a source that remembers as the control plane's client does.
type rememberedUses struct {
	mu   sync.Mutex
	last map[claimKey]time.Time
}

func (*rememberedUses) Poll(context.Context) error { return nil }

func (s *rememberedUses) LastActive(id, claim string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.last[claimKey{id, claim}]
	return at, ok
}
func (*rememberedUses) SeenRunning(string, string, time.Time, int64) {}
func (*rememberedUses) RunningSince(string, string) (at time.Time, generation int64, ok bool) {
	return at, 0, false
}
func (*rememberedUses) Floor() time.Time { return time.Time{} }
func (s *rememberedUses) Retain(keep func(id, claim string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.last {
		if !keep(k.id, k.claim) {
			delete(s.last, k)
		}
	}
}

// events is a feed of what it is given.
type events struct{ changed map[string]*v1alpha1.Sandbox }

func (*events) Start(context.Context) error { return nil }
func (e *events) Changed() map[string]*v1alpha1.Sandbox {
	changed := e.changed
	e.changed = nil
	return changed
}

// fleet is a reconciler of `sandboxes` running sandboxes that were used lately. step
// passes the time between two checks, in which one of a hundred is used and one of
// a thousand changes.
func fleet(tb testing.TB, sandboxes int) (r *IdleTimeoutReconciler, step func()) {
	source, feed := &rememberedUses{last: map[claimKey]time.Time{}}, &events{changed: map[string]*v1alpha1.Sandbox{}}
	r, clock, _ := setup(tb, nil)
	r.source, r.feed, r.store = source, feed, store{}
	all := make([]*v1alpha1.Sandbox, sandboxes)
	for i := range all {
		all[i] = running(fmt.Sprintf("i%020d", i), 5*time.Minute)
		all[i].UID = types.UID(fmt.Sprint(i))
		feed.changed[all[i].Name] = all[i]
		source.last[keyOf(all[i])] = clock.Now()
	}
	turn := 0
	return r, func() {
		turn++
		clock.Step(DefaultInterval)
		if feed.changed == nil {
			feed.changed = map[string]*v1alpha1.Sandbox{}
		}
		for i := turn % 100; i < len(all); i += 100 {
			source.last[keyOf(all[i])] = clock.Now()
		}
		for i := turn % 1000; i < len(all); i += 1000 {
			feed.changed[all[i].Name] = all[i]
		}
	}
}

// TestCheckOfALargeFleet: a check allocates for what changed, not for what there is.
func TestCheckOfALargeFleet(t *testing.T) {
	r, step := fleet(t, 100_000)
	r.check(t.Context())
	const checks, most = 10, 10 << 20
	var sum uint64
	for range checks {
		step()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.check(t.Context())
		runtime.ReadMemStats(&after)
		sum += after.TotalAlloc - before.TotalAlloc
	}
	if got := sum / checks; got > most {
		t.Errorf("%d bytes a check, at most %d", got, most)
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, sandboxes := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(sandboxes), func(b *testing.B) {
			r, step := fleet(b, sandboxes)
			r.check(b.Context())
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				step()
				b.StartTimer()
				r.check(b.Context())
			}
		})
	}
}

// Every claim is judged when its time has come, though a check looks at few: what
// was heard of one in the meantime counts, and what is heard of another does not.
func TestManyAreJudgedInTime(t *testing.T) {
	r, step := fleet(t, 1000)
	r.check(t.Context())
	source := r.source.(*rememberedUses)
	for range int(5*time.Minute/DefaultInterval) - 1 {
		step()
		r.check(t.Context())
	}
	now := r.Clock.Now()
	for _, c := range r.claims.all {
		at, _ := source.LastActive(c.key.id, c.key.claim)
		if due, ok := idleAt(5*time.Minute, c.seen, at, time.Time{}); !ok || !due.After(now) || c.judge.After(due) {
			t.Fatalf("%s is idle at %v and is judged at %v, it is %v", c.key.id, due, c.judge, now)
		}
	}
}

// A pool whose timeout is made shorter has its sandboxes judged by that at the
// next check, be it in the pool or in its template.
func TestThePoolsTimeoutChanges(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pool.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "t"}
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.IdleTimeout = &metav1.Duration{Duration: time.Hour}
	s := running("s", 0)
	s.Spec.Timeouts.Idle = nil
	own := running("own", time.Hour)
	r, clock, c := setup(t, &gateways{at: nobody}, pool, template, s, own)
	r.check(t.Context())
	for _, shorter := range []func(){
		func() { template.Spec.IdleTimeout.Duration = 30 * time.Minute },
		func() { pool.Spec.IdleTimeout = &metav1.Duration{Duration: 10 * time.Minute} },
	} {
		clock.Step(9 * time.Minute)
		r.check(t.Context())
		if got := ended(t, c, "s"); got != "" {
			t.Fatalf("end %q before its time", got)
		}
		shorter()
		for _, o := range []client.Object{pool, template} {
			if err := c.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.check(t.Context())
	if got := ended(t, c, "s"); got != v1alpha1.EndIdleTimeout {
		t.Errorf("end %q after the pool's new timeout", got)
	}
	if got := ended(t, c, "own"); got != "" {
		t.Errorf("end %q of one with a timeout of its own", got)
	}
}
