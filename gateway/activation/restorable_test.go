package activation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// While the store of archives hangs, sandboxes that are to be restored hold no pod and no claim
// up: a new sandbox gets the pool's pod at once. They take none once the store has failed.
func TestRestoresWaitBesideClaims(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(w.c)
	stuck, asked := make(chan struct{}), atomic.Int32{}
	errStuck := errors.New("the store does not answer")
	g.o.Restorable = func(context.Context, *v1alpha1.Sandbox) error {
		asked.Add(1)
		<-stuck
		return errStuck
	}
	const restores = 40 // more than a pool's claims at once
	var waiting sync.WaitGroup
	for range restores {
		s := w.make(kubetest.Name("restored"), func(s *v1alpha1.SandboxSpec) {
			s.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "gone", PodUID: "u"}
		})
		for _, write := range []func() writes.Patch{
			func() writes.Patch { return writes.PauseAs(s, v1alpha1.PauseHibernate) },
			func() writes.Patch { return writes.GiveUpPod(s, "checkpoint") },
		} {
			if err := w.c.Patch(t.Context(), s, write().Build()); err != nil {
				t.Fatal(err)
			}
		}
		r := w.request(s.Name, false, 30*time.Second)
		r.Resume = routing.Resume{UID: s.UID, Lifetime: time.Minute}
		waiting.Go(func() {
			if err := g.Activate(t.Context(), r); !errors.Is(err, errStuck) {
				t.Errorf("%v, want the store's error", err)
			}
		})
	}
	kubetest.Eventually(t, "all to wait for the store", func() error {
		if n := asked.Load(); n < restores {
			return errors.New("not all do")
		}
		return nil
	})
	w.idle(1)
	if err := g.Activate(t.Context(), w.request(kubetest.Name("new"), true, 10*time.Second)); err != nil {
		t.Errorf("a new sandbox: %v", err)
	}
	close(stuck)
	waiting.Wait()
	if n := len(w.pods()); n != 1 {
		t.Errorf("%d pods", n)
	}
}
