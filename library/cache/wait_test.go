package cache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/cache/cachetest"
	"github.com/sandlane/sandlane/test/bubble"
)

// controller writes statuses as reconcilers/sandbox does.
type controller struct{ client.Client }

// fetch reads the sandbox from the API server.
func (x controller) fetch(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	s := &v1alpha1.Sandbox{}
	return s, x.Get(ctx, client.ObjectKey{Name: id}, s)
}

// report writes the phase and the conditions of the sandbox's present generation.
func (x controller) report(ctx context.Context, id string) error {
	s, err := x.fetch(ctx, id)
	if err != nil {
		return err
	}
	ready, paused := condition(s, v1alpha1.SandboxConditionReady, metav1.ConditionTrue, "Running"),
		condition(s, v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonResumed)
	s.Status.ObservedGeneration = s.Generation
	s.Status.Phase, s.Status.Address, s.Status.AddressClaim = v1alpha1.SandboxRunning, "10.0.0.1", s.Spec.Binding.ClaimID
	if s.Spec.Paused {
		s.Status.Phase = v1alpha1.SandboxPaused
		ready.Status, ready.Reason = metav1.ConditionFalse, "Paused"
		paused.Status, paused.Reason = metav1.ConditionTrue, v1alpha1.ReasonFrozen
	}
	if v1alpha1.EverPaused(s) {
		s.Status.Pause = &v1alpha1.PauseStatus{Order: s.Spec.PauseOrder, State: v1alpha1.PauseState(paused.Reason), Since: metav1.Now()}
	}
	meta.SetStatusCondition(&s.Status.Conditions, ready)
	meta.SetStatusCondition(&s.Status.Conditions, paused)
	return x.Status().Update(ctx, s)
}

func condition(s *v1alpha1.Sandbox, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, ObservedGeneration: s.Generation, LastTransitionTime: metav1.Now()}
}

// flip writes a pause or a resume of the sandbox, from the state that was read.
func flip(ctx context.Context, c client.Client, s *v1alpha1.Sandbox, paused bool) error {
	if paused {
		return c.Patch(ctx, s.DeepCopy(), writes.Pause(s).Build())
	}
	return c.Patch(ctx, s.DeepCopy(), writes.Resume(s, nil).Build())
}

// started runs f in virtual time with a sandbox that runs.
func started(t *testing.T, f func(t *testing.T, c *cache.Cache, api controller, s *v1alpha1.Sandbox)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		c, api := cachetest.New(t, cache.Config{}, sandbox("n", "s"))
		x := controller{api}
		if err := x.report(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		s, err := x.fetch(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f(t, c, x, s)
	})
}

type result struct {
	s   *v1alpha1.Sandbox
	err error
}

func wait(task *cache.WaitTask[*v1alpha1.Sandbox]) <-chan result {
	done := make(chan result, 1)
	go func() {
		s, err := task.Wait(time.Minute)
		done <- result{s, err}
	}()
	return done
}

// A pause and a resume from the write to the status: the task is held before the write,
// and ends with the status of that write.
func TestPauseAndResume(t *testing.T) {
	started(t, func(t *testing.T, c *cache.Cache, api controller, s *v1alpha1.Sandbox) {
		ctx := t.Context()
		for _, paused := range []bool{true, false, true} {
			asked, opposite := c.NewSandboxPauseTask, c.NewSandboxResumeTask
			if !paused {
				asked, opposite = opposite, asked
			}
			task, err := asked(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := opposite(ctx, s); !errors.Is(err, cache.ErrWaitTaskConflict) {
				t.Errorf("the opposite action: %v", err)
			}
			done := wait(task)
			if err := flip(ctx, api, s, paused); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case r := <-done:
				t.Fatalf("it ended with the write: %+v, %v", r.s, r.err)
			default:
			}
			began := time.Now()
			if err := api.report(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			r := <-done
			if r.err != nil || r.s.Spec.Paused != paused || r.s.Generation != s.Generation+1 || time.Since(began) != 0 {
				t.Fatalf("%+v, %v after %v", r.s, r.err, time.Since(began))
			}
			if open := c.GetWaitHooks().List(); len(open) != 0 {
				t.Errorf("held: %+v", open)
			}
			s = r.s
		}
	})
}

// An informer that is behind the caller shows the sandbox as it was before the pause that
// the caller resumes it from: that is not the end of the resume.
func TestResumeOfWhatTheInformerHasNotSeenPaused(t *testing.T) {
	started(t, func(t *testing.T, c *cache.Cache, _ controller, s *v1alpha1.Sandbox) {
		s.Spec.Paused, s.Generation = true, s.Generation+1 // as the caller has read it from the API server
		task, err := c.NewSandboxResumeTask(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := task.Wait(5 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Of two tasks for the same action the second ends with the status of the first one's write.
func TestSecondOfTheSameAction(t *testing.T) {
	started(t, func(t *testing.T, c *cache.Cache, api controller, s *v1alpha1.Sandbox) {
		first, err := c.NewSandboxPauseTask(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := flip(t.Context(), api, s, true); err != nil {
			t.Fatal(err)
		}
		if s, err = api.fetch(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		second, err := c.NewSandboxPauseTask(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		a, b := wait(first), wait(second)
		if err := api.report(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if r := <-a; r.err != nil {
			t.Error(r.err)
		}
		if r := <-b; r.err != nil {
			t.Error(r.err)
		}
	})
}

// A task for a pause ends when the sandbox ends, and when it is deleted.
func TestWaitForWhatEnds(t *testing.T) {
	started(t, func(t *testing.T, c *cache.Cache, api controller, s *v1alpha1.Sandbox) {
		task, err := c.NewSandboxPauseTask(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		ready := wait(task)
		s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndFailed, Message: "its pod is lost"}
		if err := api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if r := <-ready; !errors.Is(r.err, cache.ErrFailed) || r.err.Error() != "waiting for Sandbox s (pause): "+cache.ErrFailed.Error()+": it has ended: Failed: its pod is lost" {
			t.Error(r.err)
		}
		synctest.Wait()
		if err := api.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := <-wait(c.NewSandboxWaitReadyTask(t.Context(), s)); !errors.Is(r.err, cache.ErrGone) {
			t.Error(r.err)
		}
	})
}

// A sandbox is ready with the address of its claim, a checkpoint done with its ID.
func TestReadyAndCheckpoint(t *testing.T) {
	started(t, func(t *testing.T, c *cache.Cache, api controller, s *v1alpha1.Sandbox) {
		ctx := t.Context()
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: "d", PodName: "pod-2", PodUID: "u2"}
		if err := api.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
		done := wait(c.NewSandboxWaitReadyTask(ctx, s))
		synctest.Wait()
		if err := api.report(ctx, "s"); err != nil {
			t.Fatal(err)
		}
		if r := <-done; r.err != nil || r.s.Status.AddressClaim != "d" {
			t.Errorf("%+v, %v", r.s, r.err)
		}

		cp := checkpoint("n", "cp", "")
		if err := api.Create(ctx, cp); err != nil {
			t.Fatal(err)
		}
		saved := make(chan error, 1)
		go func() {
			cp, err := c.NewCheckpointTask(ctx, cp).Wait(time.Minute)
			if err == nil && cp.Status.CheckpointID != "id" {
				err = errors.New("without its ID")
			}
			saved <- err
		}()
		synctest.Wait()
		cp.Status.Phase, cp.Status.CheckpointID = v1alpha1.CheckpointSucceeded, "id"
		if err := api.Status().Update(ctx, cp); err != nil {
			t.Fatal(err)
		}
		if err := <-saved; err != nil {
			t.Error(err)
		}
	})
}

// A task for an object without a UID, which was not read from the API server, fails: it could
// not tell the object from a later one of the same name.
func TestTaskWithoutUID(t *testing.T) {
	started(t, func(t *testing.T, c *cache.Cache, _ controller, _ *v1alpha1.Sandbox) {
		if _, err := c.NewSandboxPauseTask(t.Context(), sandbox("n", "s")); err == nil {
			t.Error("a task of a sandbox without a UID")
		}
		if _, err := c.NewSandboxWaitReadyTask(t.Context(), sandbox("n", "s")).Wait(time.Second); err == nil {
			t.Error("a lazy one")
		}
	})
}
