package sandbox

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/steadyclock"
	"github.com/sandlane/sandlane/test/bubble"
)

// An end time comes to the second whatever the time of day does meanwhile: a step
// that is taken back moves nothing, one that stays is followed a minute later, by
// a sandbox that nobody looks at otherwise.
func TestEndAtWhileTheClockSteps(t *testing.T) {
	const end = 10 * time.Minute
	const second, minute = time.Second, time.Minute
	for name, tc := range map[string]struct {
		// off is by how much the time of day is wrong, so long after the start.
		off func(at time.Duration) time.Duration
		// want is when the end comes, within so much.
		want, within time.Duration
	}{
		"steady":                       {func(time.Duration) time.Duration { return 0 }, end, second},
		"ahead for 55 s, and again":    {span(time.Hour, 2*minute, 2*minute+55*second, 5*minute, 5*minute+55*second), end, second},
		"ahead as the end comes":       {span(time.Hour, end-30*second, end+25*second), end, second},
		"behind as the end comes":      {span(-time.Hour, end-30*second, end+25*second), end, second},
		"behind for 55 s, and again":   {span(-time.Hour, 2*minute, 2*minute+55*second, 5*minute, 5*minute+55*second), end, second},
		"ahead from then on":           {span(time.Hour, 2*minute, time.Hour), 3 * minute, 11 * second},
		"a minute ahead from then on":  {span(minute, 2*minute, time.Hour), end - minute, second},
		"an hour behind from then on":  {span(-time.Hour, 2*minute, 2*time.Hour), end + time.Hour, second},
		"a minute behind from then on": {span(-minute, 2*minute, time.Hour), end + minute, second},
		"slow by a second a minute":    {func(at time.Duration) time.Duration { return -at / 60 }, end * 60 / 59, 2 * second},
		"fast by a second a minute":    {func(at time.Duration) time.Duration { return at / 60 }, end * 60 / 61, 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				start := time.Now()
				s, pod := bound()
				s.UID, s.Finalizers = "uid", []string{v1alpha1.FinalizerSandbox}
				s.Generation = 1 // the fake API server counts none
				s.Spec.Timeouts.EndAt = &metav1.Time{Time: start.Add(end)}
				g := newRig(t, s, pod)
				passed := func() time.Duration { return time.Since(start) }
				g.Clock = steadyclock.From(func() time.Time { return time.Now().Round(0).Add(tc.off(passed())) }, passed)
				stop := g.work(t)
				defer stop()
				for g.sandbox(t).Spec.End == nil && passed() < 80*minute {
					time.Sleep(500 * time.Millisecond)
				}
				if off := passed() - tc.want; off < -tc.within || off > tc.within {
					t.Errorf("ended after %v, want %v", passed(), tc.want)
				}
				if got := g.sandbox(t).Spec.End; got == nil || got.Reason != v1alpha1.EndEndAt {
					t.Errorf("ended as %+v", got)
				}
			})
		})
	}
}

// span is wrong by so much from the first to the second of each two times.
func span(by time.Duration, edges ...time.Duration) func(time.Duration) time.Duration {
	return func(at time.Duration) time.Duration {
		for i := 0; i < len(edges); i += 2 {
			if edges[i] <= at && at < edges[i+1] {
				return by
			}
		}
		return 0
	}
}

// work reconciles the one sandbox whenever it is asked for, as its controller does.
func (g *rig) work(t *testing.T) (stop func()) {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	ctx, cancel := context.WithCancel(t.Context())
	if err := g.followTimeOfDay(ctx, queue); err != nil {
		t.Fatal(err)
	}
	request := reconcile.Request{}
	request.Name = "s"
	queue.Add(request)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			next, quit := queue.Get()
			if quit {
				return
			}
			result, err := g.Reconcile(ctx, next)
			if err != nil {
				t.Error(err)
			}
			if result.RequeueAfter > 0 {
				queue.AddAfter(next, result.RequeueAfter)
			}
			queue.Done(next)
		}
	}()
	return func() { cancel(); queue.ShutDown(); <-done }
}
