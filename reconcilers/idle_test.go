package reconcilers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// use says that everything named is in use now.
type use struct {
	silent atomic.Bool
	id     atomic.Value
}

func (u *use) Poll(context.Context) error {
	if u.silent.Load() {
		return errors.New("a gateway does not answer")
	}
	return nil
}

func (u *use) LastActive(id, _ string) (time.Time, bool) {
	used, _ := u.id.Load().(string)
	return time.Now(), id == used
}

func (u *use) PrepareRelease(_ context.Context, releases []controlplane.Release) (map[string]bool, error) {
	if u.silent.Load() {
		return nil, errors.New("a gateway does not answer")
	}
	id, _ := u.id.Load().(string)
	return map[string]bool{id: true}, nil
}

func TestIdleRelease(t *testing.T) {
	u := &use{}
	w := newWorld(t, func(w *world) {
		w.options.LastActive = u
		w.options.IdleCheckInterval = 100 * time.Millisecond
	})
	w.pool("p", 2, 0)
	w.await("p", v1alpha1.PodIdle, 2)
	idle := func(s *v1alpha1.Sandbox) { s.Spec.Timeouts.Idle = &metav1.Duration{Duration: 4 * time.Second} } // the least
	u.silent.Store(true)
	used, _ := w.running("p", idle)
	unused, _ := w.running("p", idle)
	u.id.Store(used.Name)
	never(t, 5*time.Second, "released while a gateway is silent", func() bool {
		return w.sandbox(unused.Name).Spec.End != nil
	})
	u.silent.Store(false)
	unused = w.awaitSandbox(unused, v1alpha1.SandboxEnded)
	if unused.Spec.End.Reason != v1alpha1.EndIdleTimeout {
		t.Errorf("end %+v", unused.Spec.End)
	}
	if got := w.sandbox(used.Name); got.Spec.End != nil || got.Status.LastActive == nil {
		t.Errorf("the sandbox in use: end %+v, last active %v", got.Spec.End, got.Status.LastActive)
	}
}

// TestSandboxThatDoesNotStart never gets its changed image.
func TestSandboxThatDoesNotStart(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.IdleCheckInterval = 100 * time.Millisecond })
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	pod := w.pods("p", v1alpha1.PodIdle)[0]
	s := w.newSandbox("p", &pod, func(s *v1alpha1.Sandbox) { s.Spec.Timeouts.Startup = &metav1.Duration{Duration: time.Second} })
	patch := claimPatch(s, v1alpha1.PodStarting).Set("/spec/containers/0/image", "local/other")
	if err := w.c.Patch(t.Context(), pod.DeepCopy(), patch.Build()); err != nil {
		t.Fatal(err)
	}
	s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
	if s.Spec.End.Reason != v1alpha1.EndStartupTimeout || s.Status.Stop == nil || s.Status.Stop.StopReason != v1alpha1.StopFailed {
		t.Errorf("end %+v, stop %+v", s.Spec.End, s.Status.Stop)
	}
	w.awaitGone(&pod)
}
