package sandboxpool

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/test/bubble"
)

// readyHooks last until their time is up, and a second more.
type readyHooks struct{ begun, over atomic.Int32 }

func (h *readyHooks) OnSandboxReady(ctx context.Context, _ *corev1.Pod) {
	h.begun.Add(1)
	<-ctx.Done()
	time.Sleep(time.Second)
	h.over.Add(1)
}

// A reconcile does not wait for the hook, which has its time; a manager that stops does,
// and calls it no more.
func TestReadyHookEndsWithTheManager(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &readyHooks{}
		r := &SandboxPoolReconciler{SandboxReadyHook: h}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- r.readyHooks.Start(ctx) }()
		r.callReadyHook(ctx, &corev1.Pod{})
		time.Sleep(readyHookTime + time.Minute)
		if h.begun.Load() != 1 || h.over.Load() != 1 {
			t.Fatalf("called %d times, %d are over", h.begun.Load(), h.over.Load())
		}
		r.callReadyHook(ctx, &corev1.Pod{})
		synctest.Wait()
		cancel()
		if err := <-stopped; err != nil || h.over.Load() != 2 {
			t.Errorf("the manager has stopped with %v, and %d of 2 are over", err, h.over.Load())
		}
		r.callReadyHook(ctx, &corev1.Pod{})
		synctest.Wait()
		if h.begun.Load() != 2 {
			t.Error("called after the end")
		}
	})
}
