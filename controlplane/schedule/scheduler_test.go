package schedule

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/bubble"
)

// onRig runs a test on a rig in virtual time.
func onRig(t *testing.T, test func(t *testing.T, r *rig), opts ...Option) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, opts...)
		defer r.stop()
		test(t, r)
	})
}

// result returns the one result there must be by now.
func result(t *testing.T, q *ClaimRequest) ClaimResult {
	t.Helper()
	synctest.Wait()
	select {
	case res := <-resultsOf(q):
		return res
	default:
		t.Fatalf("request %s has no result", q.SandboxID)
		panic("unreachable")
	}
}

func waits(t *testing.T, q *ClaimRequest) {
	t.Helper()
	synctest.Wait()
	select {
	case res := <-resultsOf(q):
		t.Fatalf("request %s has a result: %+v", q.SandboxID, res)
	default:
	}
}

func gets(t *testing.T, q *ClaimRequest, pod string) *corev1.Pod {
	t.Helper()
	res := result(t, q)
	if res.Err != nil {
		t.Fatalf("request %s: %v", q.SandboxID, res.Err)
	}
	if res.Pod.Name != pod {
		t.Fatalf("request %s got pod %s, want %s", q.SandboxID, res.Pod.Name, pod)
	}
	return res.Pod
}

func fails(t *testing.T, q *ClaimRequest, want error) {
	t.Helper()
	if res := result(t, q); !errors.Is(res.Err, want) || res.Pod != nil {
		t.Fatalf("request %s: pod %v, error %v; want %v", q.SandboxID, res.Pod, res.Err, want)
	}
}

// pass lets virtual time go by.
func pass(d time.Duration) { <-time.After(d); synctest.Wait() }

func TestFirstComeFirstServed(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1", "p2", "p3")
		r.Offer(r.api.pod("p1")) // the same UID again
		a, b, c := r.ask(t, "a", time.Minute), r.ask(t, "b", time.Minute), r.ask(t, "c", time.Minute)
		d := r.ask(t, "d", time.Minute)
		pod := gets(t, a, "p1")
		gets(t, b, "p2")
		gets(t, c, "p3")
		waits(t, d)
		claim := Claim{SandboxID: "a", ClaimID: a.ClaimID, PodUID: "uid-p1"}
		if !claim.On(pod) || v1alpha1.PhaseOf(pod) != v1alpha1.PodRunning ||
			pod.Annotations[v1alpha1.AnnotationClaimedAt] == "" || pod.Annotations[v1alpha1.AnnotationStartedAt] == "" {
			t.Errorf("claimed pod has labels %v, annotations %v", pod.Labels, pod.Annotations)
		}
		if n := r.api.count(""); n != 4 { // three claims and one word to the pool
			t.Errorf("%d calls for three claims: %v", n, r.api.calls)
		}
	})
}

func TestStockIsHandedOverTheMomentItTurnsIdle(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		a := r.ask(t, "a", time.Minute)
		pass(10 * time.Second)
		waits(t, a)
		start := time.Now()
		r.stockUp("p1")
		gets(t, a, "p1")
		if d := time.Since(start); d != 0 {
			t.Errorf("handed over after %v", d)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		ask := func(tenant string) bool {
			return r.Enqueue(&ClaimRequest{Tenant: tenant, ResultCh: make(chan ClaimResult, 1)})
		}
		for i := range 3 {
			if !ask("one") {
				t.Fatalf("request %d was refused", i)
			}
		}
		if ask("one") {
			t.Error("one tenant filled the queue")
		}
		if !ask("two") {
			t.Error("no room for another tenant")
		}
		if ask("two") || ask("") {
			t.Error("a full queue accepted a request")
		}
	}, WithQueueSize(4))
}

func TestQueueTakesWhatStockCanServe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		s := NewPoolScheduler("ns", "pool", "", "", api, WithQueueSize(1)) // not running yet
		for i := range 5 {
			s.Offer(api.idle(fmt.Sprint("p", i)))
		}
		for i := range 6 {
			if !s.Enqueue(&ClaimRequest{ResultCh: make(chan ClaimResult, 1)}) {
				t.Fatalf("request %d was refused", i)
			}
		}
		if s.Enqueue(&ClaimRequest{ResultCh: make(chan ClaimResult, 1)}) {
			t.Error("a full queue accepted a request")
		}
		s.Shutdown()
	})
}

func TestDeadlineAndCancellationWhileQueued(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		short, long := r.ask(t, "short", time.Second), r.ask(t, "long", time.Hour)
		left := r.ask(t, "left", time.Hour, func(q *ClaimRequest) { q.Ctx = ctx })
		pass(time.Second - 1)
		waits(t, short)
		pass(1)
		fails(t, short, ErrDeadline)
		cancel()
		fails(t, left, context.Canceled)
		waits(t, long)
		r.stockUp("p1")
		gets(t, long, "p1")
	})
}

func TestLostBindGivesThePodBack(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1")
		a := r.ask(t, "a", time.Minute, func(q *ClaimRequest) {
			q.Bind = func(context.Context, *corev1.Pod) error { return fmt.Errorf("create: %w", writes.ErrStale) }
			q.Unbind = func(context.Context, *corev1.Pod) error { t.Error("Unbind was called"); return nil }
		})
		fails(t, a, writes.ErrStale)
		gets(t, r.ask(t, "b", time.Minute), "p1")
		if n := r.api.count("claim"); n != 1 {
			t.Errorf("%d claim PATCHes", n)
		}
	})
}

func TestReservationOutlivesTheClaim(t *testing.T) {
	m := NewMetrics(nil)
	onRig(t, func(t *testing.T, r *rig) {
		stale := r.api.idle("p1")
		r.Offer(stale)
		gets(t, r.ask(t, "a", time.Minute), "p1")
		r.Offer(stale) // the watch is behind
		b := r.ask(t, "b", time.Hour)
		pass(DefaultReservationTTL - 1)
		waits(t, b)
		if n := r.api.count("claim"); n != 1 {
			t.Fatalf("a reserved pod was picked again: %v", r.api.calls)
		}
		pass(1) // the watch never said that the pod left idle
		if n := r.api.count("claim"); n != 2 {
			t.Errorf("%d claim PATCHes after the reservation's end", n)
		}
		waits(t, b)
		if n := testutil.ToFloat64(m.expired); n != 1 {
			t.Errorf("%v expired reservations", n)
		}
		r.Forget(stale.UID)
		pass(2 * DefaultReservationTTL)
		if n := r.api.count("claim"); n != 2 {
			t.Errorf("a forgotten pod was picked again: %v", r.api.calls)
		}
	}, WithMetrics(m))
}

func TestForgottenPodsAreNotPicked(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		r.stockUp("p1", "p2")
		r.Forget("uid-p1")
		p2 := r.api.pod("p2")
		p2.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
		r.Offer(p2) // an offer of what is not idle is a Forget
		r.stockUp("p3")
		gets(t, r.ask(t, "a", time.Minute), "p3")
	})
}

func TestShutdownAnswersEveryone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.stockUp("p1")
		proceed := make(chan struct{})
		r.api.answers(func(call string, apply func() error) error {
			if call == "claim p1" {
				<-proceed
			}
			return apply()
		})
		claiming := r.ask(t, "a", time.Hour)
		synctest.Wait()
		waiting := r.ask(t, "b", time.Hour)
		stopped := make(chan struct{})
		go func() { r.Shutdown(); close(stopped) }()
		fails(t, waiting, ErrShutdown)
		waits(t, claiming)
		select {
		case <-stopped:
			t.Error("Shutdown returned before a claim under way was answered")
		default:
		}
		close(proceed)
		gets(t, claiming, "p1")
		<-stopped
		if r.Enqueue(&ClaimRequest{ResultCh: make(chan ClaimResult, 1)}) {
			t.Error("a request was accepted after Shutdown")
		}
		r.Shutdown() // again
		r.stop()
	})
}

func TestShutdownWithoutRun(t *testing.T) {
	s := NewPoolScheduler("ns", "pool", "", "", newFakeAPI())
	q := &ClaimRequest{ResultCh: newResults(1)}
	s.Enqueue(q)
	s.Shutdown()
	if res := <-resultsOf(q); !errors.Is(res.Err, ErrShutdown) {
		t.Errorf("got %v", res.Err)
	}
}

func TestPoolIsToldOnce(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		a, b := r.ask(t, "a", time.Hour), r.ask(t, "b", time.Hour)
		pass(time.Minute)
		r.NotifyIdle()
		synctest.Wait()
		if n := r.api.count("pool"); n != 1 {
			t.Fatalf("the pool was told %d times", n)
		}
		r.stockUp("p1", "p2")
		gets(t, a, "p1")
		gets(t, b, "p2")
		r.ask(t, "c", time.Hour)
		synctest.Wait()
		if n := r.api.count("pool"); n != 2 {
			t.Errorf("the pool was told %d times after stock had come and gone", n)
		}
	})
}

func TestUnbufferedResultIsDelivered(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		q := r.ask(t, "a", time.Second, func(q *ClaimRequest) { q.ResultCh = newResults(0) })
		pass(time.Minute)
		if res := <-resultsOf(q); !errors.Is(res.Err, ErrDeadline) {
			t.Errorf("got %v", res.Err)
		}
	})
}

// A program that makes a slip gets an error, not a panic: a scheduler without a client, and
// a request without a channel.
func TestSlipsOfPrograms(t *testing.T) {
	results := make(chan ClaimResult, 1)
	s := NewPoolScheduler("ns", "pool", "", "", nil)
	if !s.Enqueue(&ClaimRequest{SandboxID: "a", ResultCh: results}) {
		t.Error("a request is not accepted")
	}
	if res := <-results; !errors.Is(res.Err, ErrNoClient) {
		t.Errorf("without a client: %v", res.Err)
	}
	s.Shutdown()
	if NewPoolScheduler("ns", "pool", "", "", newFakeAPI()).Enqueue(&ClaimRequest{SandboxID: "a"}) {
		t.Error("a request that nobody can be told the result of is accepted")
	}
}
