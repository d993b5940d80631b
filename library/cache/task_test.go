package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// A change that comes after a task has read and before it waits is not missed.
func TestChangeDuringTheLook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		o.during = func() {
			o.mu.Lock()
			o.during = nil
			o.mu.Unlock()
			o.inform(sandboxAt("u", 2))
		}
		began := time.Now()
		if _, err := o.task(t.Context(), ActionReady, 2).Wait(time.Minute); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, reads := o.counts(); reads != 0 {
			t.Errorf("%d reads of the API server", reads)
		}
	})
}

// One change wakes all tasks that wait for it, at once.
func TestManyWaiters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const waiters = 1000
		o := newObject()
		var all []<-chan error
		for range waiters {
			all = append(all, waiting(o.task(t.Context(), ActionReady, 2), time.Minute))
		}
		synctest.Wait()
		if open := o.c.hooks.List(); len(open) != 1 || open[0].Tasks != waiters {
			t.Fatalf("hooks held: %+v", open)
		}
		began := time.Now()
		o.inform(sandboxAt("u", 2))
		for _, done := range all {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("after %v", time.Since(began))
		}
		o.held(t, 0)
	})
}

// A task goes on waiting if the state came and went before the task saw it.
func TestFlappingState(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		done := waiting(o.task(t.Context(), ActionReady, 2), time.Minute)
		synctest.Wait()
		o.mu.Lock() // no read between the two
		o.informed = sandboxAt("u", 2)
		o.informed = sandboxAt("u", 3)
		o.mu.Unlock()
		o.inform(sandboxAt("u", 4))
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		o.inform(sandboxAt("u", 2))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// If the object is deleted, or made anew under its name, its task ends with ErrGone at once.
func TestGone(t *testing.T) {
	for what, change := range map[string]func(*object){
		"deleted":   func(o *object) { o.inform(nil) },
		"made anew": func(o *object) { o.inform(sandboxAt("another", 2)) },
		"deleted and made anew while the task looks elsewhere": func(o *object) {
			o.inform(nil)
			o.inform(sandboxAt("another", 2))
		},
	} {
		bubble.Test(t, func(t *testing.T) {
			o := newObject()
			done := waiting(o.task(t.Context(), ActionReady, 2), time.Minute)
			synctest.Wait()
			began := time.Now()
			change(o)
			if err := <-done; !errors.Is(err, ErrGone) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
			if _, reads := o.counts(); reads != 0 {
				t.Errorf("%s: %d reads of the API server", what, reads)
			}
			o.held(t, 0)
		})
	}
}

// An object that the informer does not show, or of which it shows another of the same name,
// may be new or gone: the task reads it from the API server once, and again at each poll.
func TestNotInTheInformer(t *testing.T) {
	away := errors.New("the API server is away")
	for what, c := range map[string]struct {
		informed, live *v1alpha1.Sandbox
		err            error
		want           error
		after          time.Duration
	}{
		"new":             {nil, sandboxAt("u", 2), nil, nil, 0},
		"new, not so far": {nil, sandboxAt("u", 1), nil, context.DeadlineExceeded, 25 * time.Second},
		"gone":            {nil, nil, nil, ErrGone, 0},
		"another there":   {nil, sandboxAt("another", 2), nil, ErrGone, 0},
		"another known":   {sandboxAt("another", 2), sandboxAt("u", 2), nil, nil, 0},
		"not to be had":   {nil, sandboxAt("u", 2), away, context.DeadlineExceeded, 25 * time.Second},
	} {
		bubble.Test(t, func(t *testing.T) {
			o := newObject()
			o.informed, o.live, o.liveErr = c.informed, c.live, c.err
			began := time.Now()
			_, err := o.task(t.Context(), ActionReady, 2).Wait(25 * time.Second)
			if !errors.Is(err, c.want) || time.Since(began) != c.after || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
			if _, reads := o.counts(); reads != 1+int(c.after/(10*time.Second)) {
				t.Errorf("%s: %d reads of the API server", what, reads)
			}
			o.held(t, 0)
		})
	}
}

// If an informer gets no events any more, the poll finds the change.
func TestPoll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		o.live = sandboxAt("u", 2)
		began := time.Now()
		if _, err := o.task(t.Context(), ActionReady, 2).Wait(time.Minute); err != nil || time.Since(began) != pollInterval {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// While the API server does not answer, a task still gets the informer's changes.
func TestPollThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		task := o.task(t.Context(), ActionReady, 2)
		task.live = func(ctx context.Context) (*v1alpha1.Sandbox, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		done := waiting(task, time.Minute)
		time.Sleep(2 * pollInterval)
		o.inform(sandboxAt("u", 2))
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it still waits")
		}
	})
}

// Any number of tasks hold an action from their constructors on; a task of another action
// gets a conflict until the last of them has released the hook.
func TestConflict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		first, second := o.task(t.Context(), ActionPause, 2), o.task(t.Context(), ActionPause, 2)
		if err := errors.Join(first.acquire(), second.acquire()); err != nil {
			t.Fatal(err)
		}
		conflict := func(what string, want bool) {
			t.Helper()
			opposite := o.task(t.Context(), ActionResume, 2)
			if err := opposite.acquire(); errors.Is(err, ErrWaitTaskConflict) != want || (err != nil) != want {
				t.Errorf("%s: %v", what, err)
			}
			opposite.Release()
			_, err := o.task(t.Context(), ActionReady, 1).Wait(0)
			if errors.Is(err, ErrWaitTaskConflict) != want || (err != nil) != want {
				t.Errorf("%s: a lazy one: %v", what, err)
			}
		}
		conflict("two hold it", true)
		first.Release()
		first.Release()
		conflict("one holds it", true)
		done := waiting(second, time.Minute)
		synctest.Wait()
		conflict("a task waits for it", true)
		o.inform(sandboxAt("u", 2))
		if err := <-done; err != nil {
			t.Error(err)
		}
		o.informed = sandboxAt("u", 1)
		conflict("no task holds it", false)
		second.Release()
		o.held(t, 0)
		// Another object of the name is another object.
		other := newWaitTask(t.Context(), o.c, keyOf(KindSandbox, sandboxAt("v", 1)), second.waitKind)
		third := o.task(t.Context(), ActionResume, 2)
		if err := errors.Join(other.acquire(), third.acquire()); err != nil {
			t.Error(err)
		}
		other.Release()
		third.Release()
	})
}

// A task can be used once, also if it ended without an answer, and a lazy task holds nothing
// before Wait.
func TestUsedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		waited, released, timedOut, under := o.task(t.Context(), ActionReady, 1), o.task(t.Context(), ActionReady, 1),
			o.task(t.Context(), ActionReady, 2), o.task(t.Context(), ActionReady, 2)
		o.held(t, 0)
		if s, err := waited.Wait(0); err != nil || s.Generation != 1 {
			t.Errorf("%v, %v", s, err)
		}
		released.Release()
		if _, err := timedOut.Wait(time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		done := waiting(under, time.Minute)
		synctest.Wait()
		under.Release()
		if err := <-done; !errors.Is(err, ErrWaitTaskUsed) {
			t.Errorf("released while it waits: %v", err)
		}
		o.held(t, 0)
		for i, task := range []*WaitTask[*v1alpha1.Sandbox]{waited, released, timedOut, under} {
			if _, err := task.Wait(time.Minute); !errors.Is(err, ErrWaitTaskUsed) {
				t.Errorf("%d: used twice: %v", i, err)
			}
			task.Release()
		}
		o.held(t, 0)
	})
}

// The end of the context with which a task was made ends the task and releases its hook.
func TestContextEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		ctx, cancel := context.WithCancel(t.Context())
		forgotten, waits, later := o.task(ctx, ActionPause, 2), o.task(ctx, ActionPause, 2), o.task(ctx, ActionPause, 2)
		if err := errors.Join(forgotten.acquire(), waits.acquire()); err != nil {
			t.Fatal(err)
		}
		done := waiting(waits, time.Minute)
		synctest.Wait()
		cancel()
		synctest.Wait()
		o.held(t, 0)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := forgotten.Wait(time.Minute); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := later.acquire(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		o.held(t, 0)
	})
}

// When a Cache stops, its waiting tasks end, and it makes no others.
func TestStoppedCache(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		done := waiting(o.task(t.Context(), ActionReady, 2), time.Minute)
		synctest.Wait()
		why := errors.New("why")
		o.c.end(why)
		if err := <-done; !errors.Is(err, ErrStopped) || !errors.Is(err, why) {
			t.Error(err)
		}
		if err := o.task(t.Context(), ActionPause, 2).acquire(); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		if _, err := o.task(t.Context(), ActionReady, 1).Wait(time.Minute); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		o.held(t, 0)
	})
}

// An informer that lists anew after a break reports a deletion with the last state that it
// knew.
func TestDeletionThatWasMissed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newObject()
		done := waiting(o.task(t.Context(), ActionReady, 2), time.Minute)
		synctest.Wait()
		o.c.hooks.handler(KindSandbox).OnDelete(toolscache.DeletedFinalStateUnknown{Key: "s", Obj: sandboxAt("u", 1)})
		if err := <-done; !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	})
}
