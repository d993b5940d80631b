package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/test/bubble"
)

// slowPauseEnforcer answers when it is told to, and notes which orders it has in hand.
type slowPauseEnforcer struct {
	answer chan error

	mu        sync.Mutex // guards the rest
	inHand    map[controlplane.EnforcePause]context.Context
	most, all int
}

func (q *slowPauseEnforcer) EnforcePause(ctx context.Context, o controlplane.EnforcePause) error {
	q.mu.Lock()
	q.inHand[o] = ctx
	q.all++
	q.most = max(q.most, len(q.inHand))
	q.mu.Unlock()
	err := <-q.answer
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.inHand, o)
	return err
}

// cancelled reports whether the order is in hand, and whether its caller wants no answer.
func (q *slowPauseEnforcer) cancelled(o controlplane.EnforcePause) (inHand, cancelled bool) {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	ctx, ok := q.inHand[o]
	return ok, ok && ctx.Err() != nil
}

func orderOf(id string, number int64) controlplane.EnforcePause {
	return controlplane.EnforcePause{SandboxID: id, ClaimID: "c", Freeze: true, Order: number}
}

// At most one try for a sandbox is under way: the next order cancels it and waits for its
// end. For a sandbox that was forgotten no try begins.
func TestOneTryASandbox(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := &slowPauseEnforcer{answer: make(chan error), inHand: map[controlplane.EnforcePause]context.Context{}}
		x := newFreezerOrders(clock.RealClock{}, q)
		queued := 0
		x.requeue = func(string) { queued++ }
		want := func(what string, o controlplane.EnforcePause, inHand, cancelled bool) {
			t.Helper()
			if a, b := q.cancelled(o); a != inHand || b != cancelled {
				t.Errorf("%s: order %d is in hand %v, cancelled %v", what, o.Order, a, b)
			}
		}
		first, second, third := orderOf("s", 1), orderOf("s", 2), orderOf("s", 3)
		x.ensure(first)
		want("looked at", first, true, false)
		x.ensure(second)
		want("replaced", first, true, true)
		want("replaced", second, false, false)
		x.ensure(third)
		q.answer <- errors.New("cancelled")
		want("the first is over", third, true, false)
		want("the first is over", second, false, false)
		if queued != 0 {
			t.Error("a try that was replaced queues the sandbox")
		}
		x.forget("s")
		want("forgotten", third, true, true)
		q.answer <- nil
		synctest.Wait()
		if q.all != 2 || len(x.asking)+x.queue.len()+len(x.open) != 0 {
			t.Errorf("%d were asked; left are %v, %v, %v", q.all, x.asking, x.queue, x.open)
		}
	})
}

// However many sandboxes are to be paused at once, a bounded number of tries is under
// way, and each has its turn.
func TestTriesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := &slowPauseEnforcer{answer: make(chan error), inHand: map[controlplane.EnforcePause]context.Context{}}
		x := newFreezerOrders(clock.RealClock{}, q)
		const sandboxes = 3 * maxPauseOrders
		ensureAll := func() (done int) {
			for i := range sandboxes {
				if x.ensure(orderOf(fmt.Sprint(i), 1)).done {
					done++
				}
			}
			return done
		}
		ensureAll()
		for range sandboxes {
			synctest.Wait()
			q.answer <- nil
		}
		synctest.Wait()
		if done := ensureAll(); q.most != maxPauseOrders || q.all != sandboxes || done != sandboxes {
			t.Errorf("%d at once, %d in all, %d are done", q.most, q.all, done)
		}
	})
}

// However many pods are silent, the other sandboxes have their turn at once; and a silent pod
// is asked less and less often.
func TestSilentPodsLeaveRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := &slowPauseEnforcer{answer: make(chan error), inHand: map[controlplane.EnforcePause]context.Context{}}
		x := newFreezerOrders(clock.RealClock{}, q)
		silence := errors.New("no answer")
		for i := range maxPauseOrders {
			x.ensure(orderOf(fmt.Sprint(i), 1))
		}
		for range maxPauseOrders {
			synctest.Wait()
			q.answer <- silence
		}
		synctest.Wait()
		time.Sleep(enforcePauseWait)
		for i := range maxPauseOrders {
			x.ensure(orderOf(fmt.Sprint(i), 1))
		}
		other := orderOf("other", 1)
		x.ensure(other)
		if inHand, _ := q.cancelled(other); !inHand || len(q.inHand) != maxSilent+1 {
			t.Errorf("the other one is asked %v, %d tries are under way", inHand, len(q.inHand))
		}
		for range maxPauseOrders + 1 {
			synctest.Wait()
			q.answer <- silence
		}
		synctest.Wait()
		if wait := x.ensure(orderOf("0", 1)).wait; wait != 2*enforcePauseWait || x.silent != 0 {
			t.Errorf("a silent pod is asked again in %s; %d silent ones are under way", wait, x.silent)
		}
	})
}

// A frozen sandbox whose freezer takes no orders any more is not called running: it is
// asked again until it answers.
func TestFrozenSandboxWithoutItsKey(t *testing.T) {
	g, q := pausable(t)
	g.spec(t, paused)
	g.settle(t)
	g.want(t, "frozen", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
	q.answer = controlplane.ErrNoFreezer
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = false })
	for i := range 3 {
		g.clock.SetTime(now.Add(time.Duration(i) * enforcePauseWait))
		if wait := g.settle(t); wait != enforcePauseWait {
			t.Errorf("%d: look again in %s", i, wait)
		}
		g.want(t, "without its key", v1alpha1.SandboxResuming, metav1.ConditionUnknown, v1alpha1.ReasonResuming)
	}
	q.answer = nil
	g.clock.SetTime(now.Add(3 * enforcePauseWait))
	g.settle(t)
	if s := g.want(t, "with its key", v1alpha1.SandboxRunning, metav1.ConditionFalse, v1alpha1.ReasonResumed); v1alpha1.Stopped(s) {
		t.Errorf("%+v", s.Status.Conditions)
	}
}

// A frozen sandbox that is resumed and paused again between two looks is ordered to be frozen
// anew, and not after another change of its spec. It does not end, and is not resumed, if its
// freezer fails or takes no order any more: its memory is all there.
func TestFrozenSandboxIsOrderedAnew(t *testing.T) {
	for what, c := range map[string]struct {
		onTimeout v1alpha1.TimeoutAction
		answer    error
	}{
		"by its timeout, without its key": {v1alpha1.TimeoutPause, controlplane.ErrNoFreezer},
		"by its timeout, deaf":            {v1alpha1.TimeoutPause, fmt.Errorf("%w: deaf", controlplane.ErrNotDone)},
		"asked, without its key":          {"", controlplane.ErrNoFreezer},
	} {
		g, q := pausable(t)
		g.spec(t, func(s *v1alpha1.SandboxSpec) { paused(s); s.Timeouts.OnTimeout = c.onTimeout })
		g.settle(t)
		g.want(t, what, v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
		q.answer = c.answer
		g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Metadata = map[string]string{"a": "b"} })
		g.settle(t)
		g.want(t, what+", another change", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
		if len(q.asked) != 1 {
			t.Errorf("%s: asked %+v", what, q.asked)
		}
		g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = false })
		g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = true })
		for range 3 {
			g.clock.SetTime(g.clock.Now().Add(enforcePausePatience))
			g.settle(t)
			g.look(t)
			s := g.want(t, what, v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonFreezing)
			if s.Spec.End != nil || !s.Spec.Paused || !v1alpha1.Stopped(s) {
				t.Errorf("%s: %+v", what, s.Spec)
			}
		}
		q.answer = nil
		g.clock.SetTime(g.clock.Now().Add(enforcePauseWait))
		g.settle(t)
		g.want(t, what+", and it answers", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
	}
}

// The controller has a gateway keep the files again and again until the pod is given up;
// for how long that fails, no timeout ends what is frozen for it.
func TestSavingStatus(t *testing.T) {
	g, q := pausable(t)
	q.answer = fmt.Errorf("%w: the store is full", controlplane.ErrNotSaved)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		paused(s)
		s.PauseMode, s.Timeouts.OnTimeout = v1alpha1.PauseHibernate, v1alpha1.TimeoutPause
	})
	g.settle(t)
	g.want(t, "left to the gateway that was asked", v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonSaving)
	for n, wait := range []time.Duration{2, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		wait *= time.Second
		g.clock.SetTime(g.clock.Now().Add(wait - time.Second))
		if again := g.settle(t); again != time.Second || len(q.asked) != n {
			t.Errorf("after %d tries it looks again in %s, asked %d times", n, again, len(q.asked))
		}
		g.clock.SetTime(g.clock.Now().Add(time.Second))
		g.settle(t)
	}
	if s := g.want(t, "for a minute", v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonSaveFailed); s.Spec.End != nil || !s.Spec.Paused {
		t.Errorf("%+v", s.Spec)
	}
	q.answer = nil // of a gateway that freezes alone
	asked := len(q.asked)
	for i := range 3 {
		g.clock.SetTime(g.clock.Now().Add(maxEnforcePauseWait))
		g.settle(t)
		g.want(t, "done, and the pod is not given up", v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonSaving)
		if len(q.asked) < asked+i+1 {
			t.Errorf("asked %d times", len(q.asked)-asked)
		}
	}
	for _, o := range q.asked {
		if !o.Saves || !o.Freeze {
			t.Errorf("asked for %+v", o)
		}
	}
	q.answer = fmt.Errorf("%w: the store is full", controlplane.ErrNotSaved)
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = false })
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = true })
	for range 2 {
		if wait := g.settle(t); wait != enforcePauseWait {
			t.Errorf("of another pause it looks again in %s", wait)
		}
		g.clock.SetTime(g.clock.Now().Add(enforcePauseWait))
	}
}

// A timeout that hibernates ends a sandbox whose freezer fails for a minute, as one that
// freezes does; but not one that is frozen by an earlier answer, which may be known from the
// status alone, nor one whose pause was asked for.
func TestHibernationThatNeverFreezes(t *testing.T) {
	refused, full := fmt.Errorf("%w: not initialised", controlplane.ErrNotDone), fmt.Errorf("%w: the store is full", controlplane.ErrNotSaved)
	for what, c := range map[string]struct {
		onTimeout  v1alpha1.TimeoutAction
		first      error // of the answers; the others are refused
		restarts   bool  // the controller, after the first
		ends       bool
		wantReason string
	}{
		"never frozen":                  {v1alpha1.TimeoutPause, refused, false, true, v1alpha1.ReasonFreezeFailed},
		"frozen once":                   {v1alpha1.TimeoutPause, full, false, false, v1alpha1.ReasonSaveFailed},
		"frozen once, and a restart":    {v1alpha1.TimeoutPause, full, true, false, v1alpha1.ReasonSaveFailed},
		"asked":                         {"", refused, false, false, v1alpha1.ReasonSaveFailed},
		"no gateway can ask, then some": {v1alpha1.TimeoutPause, errors.New("no gateway"), false, true, v1alpha1.ReasonFreezeFailed},
	} {
		g, q := pausable(t)
		q.answer = c.first
		g.spec(t, func(s *v1alpha1.SandboxSpec) {
			paused(s)
			s.PauseMode, s.Timeouts.OnTimeout = v1alpha1.PauseHibernate, c.onTimeout
		})
		g.settle(t)
		g.clock.SetTime(g.clock.Now().Add(enforcePauseWait))
		g.settle(t)
		g.want(t, what, v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonSaving)
		if c.restarts {
			g.orders = newFreezerOrders(g.clock, q)
			g.settle(t)
		}
		q.answer = refused
		for range lateRefusals {
			g.clock.SetTime(g.clock.Now().Add(enforcePausePatience))
			g.settle(t)
		}
		if !c.ends {
			g.want(t, what, v1alpha1.SandboxPausing, metav1.ConditionFalse, c.wantReason)
		}
		g.look(t)
		s := g.sandbox(t)
		if (s.Spec.End != nil) != c.ends || s.Spec.End != nil && (s.Spec.End.Reason != v1alpha1.EndEndAt || !strings.Contains(s.Spec.End.Message, c.wantReason)) {
			t.Errorf("%s: %+v", what, s.Spec)
		}
	}
}
