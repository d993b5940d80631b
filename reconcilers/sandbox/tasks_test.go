package sandbox

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/cache/cachetest"
)

// listsByIndex reads and writes objects at the API server, and lists from informers.
type listsByIndex struct {
	client.Client
	informers client.Reader
}

// List implements client.Reader.
func (x listsByIndex) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return x.informers.List(ctx, list, opts...)
}

// The statuses that are written here are those that the tasks of package cache wait for:
// each ends once the freezer has answered, and not before.
func TestStatusEndsTasks(t *testing.T) {
	s, pod := bound()
	s.UID, s.Generation, s.Finalizers = "s-uid", 1, []string{v1alpha1.FinalizerSandbox}
	mgr := cachetest.GetMockManager(t, cache.Config{}, s, pod)
	c, err := cache.NewCache(mgr)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := mgr.GetCache().IndexField(ctx, &corev1.Pod{}, indexSandboxID, sandboxIDOf); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	defer c.Stop(ctx)
	g, q := newRig(t), &stubPauseEnforcer{}
	g.Client, g.APIReader, g.orders.pauseEnforcer = listsByIndex{mgr.API(), mgr.GetCache()}, mgr.API(), q
	done := func(what string, task *cache.WaitTask[*v1alpha1.Sandbox]) {
		t.Helper()
		if _, err := task.Wait(10 * time.Second); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	if _, err := c.NewSandboxWaitReadyTask(ctx, s).Wait(0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it is ready without a status: %v", err)
	}
	g.settle(t)
	done("ready", c.NewSandboxWaitReadyTask(ctx, g.sandbox(t)))
	for range 2 {
		s = g.sandbox(t)
		task, err := c.NewSandboxPauseTask(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := mgr.API().Patch(ctx, s.DeepCopy(), writes.Pause(s).Build()); err != nil {
			t.Fatal(err)
		}
		q.answer = errors.New("no gateway answers")
		g.settle(t)
		early, err := c.NewSandboxPauseTask(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := early.Wait(0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("paused before the freezer has answered: %v", err)
		}
		q.answer = nil
		g.clock.SetTime(g.clock.Now().Add(enforcePauseWait))
		g.settle(t)
		done("paused", task)

		s = g.sandbox(t)
		if task, err = c.NewSandboxResumeTask(ctx, s); err != nil {
			t.Fatal(err)
		}
		if err := mgr.API().Patch(ctx, s.DeepCopy(), writes.Resume(s, nil).Build()); err != nil {
			t.Fatal(err)
		}
		g.settle(t)
		done("resumed", task)
		done("ready again", c.NewSandboxWaitReadyTask(ctx, g.sandbox(t)))
	}
}
