package gateway

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// What resumes a sandbox while its files are kept, at another gateway, gets them: it waits,
// and restores them in the next pod.
func TestResumeWhileSaving(t *testing.T) {
	w := newResting(t, 2, nil)
	was := w.sandbox(w.id)
	next := w.next("sha256:1")
	resumed := make(chan error, 1)
	var once sync.Once
	w.first.filesCalls.archive = func() {
		once.Do(func() {
			go func() {
				_, _, err := w.gateways[1].api.sandboxes.Resume(t.Context(), w.ns, w.id, 10*time.Minute)
				resumed <- err
			}()
			kubetest.Eventually(t, "the resume to ask the freezer", func() error {
				if orders := w.first.carriedOut(); len(orders) < 4 { // unfreeze, freeze, archive of the pause
					return fmt.Errorf("it was asked to %v", orders)
				}
				return nil
			})
		})
	}
	if err := w.gateways[0].api.sandboxes.Pause(t.Context(), w.ns, w.id, false); err != nil {
		t.Errorf("pause: %v", err)
	}
	if err := <-resumed; err != nil {
		t.Errorf("resume: %v", err)
	}
	s := w.sandbox(w.id)
	if s.Spec.Paused || s.Spec.Binding == nil || s.Spec.Restore != nil || s.Spec.Binding.ClaimID == was.Spec.Binding.ClaimID {
		t.Errorf("the spec is %+v", s.Spec)
	}
	if next.filesCalls.restored != "the files" || slices.Contains(w.first.carriedOut()[1:], fmt.Sprintf("unfreeze %d", s.Spec.PauseOrder)) {
		t.Errorf("restored %q, the first pod was asked to %v", next.filesCalls.restored, w.first.carriedOut())
	}
}

// isSaving writes what the controller writes for a timeout that has the sandbox hibernate.
func (w *resting) isSaving() *v1alpha1.Sandbox {
	w.t.Helper()
	s := w.sandbox(w.id)
	base := s.DeepCopy()
	s.Spec.Paused, s.Spec.PauseMode, s.Spec.PauseOrder, s.Spec.Timeouts.EndAt = true, v1alpha1.PauseHibernate, 1, nil
	if err := w.c.Patch(w.t.Context(), s, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// A resume, or a request, that meets a timeout's pause before any gateway does carries it out and
// restores the files. If they cannot be kept, the sandbox runs on with its memory.
func TestResumeBeforeSaving(t *testing.T) {
	withResume := func(n *restapi.NewSandbox) {
		n.AutoPause, n.AutoResume, n.AutoResumeFiles, n.Lifetime = true, true, true, 10*time.Minute
	}
	byCall := func(w *resting) error {
		_, _, err := w.gateways[0].api.sandboxes.Resume(t.Context(), w.ns, w.id, 10*time.Minute)
		return err
	}
	byRequest := func(w *resting) error {
		g := w.gateways[0]
		kubetest.Eventually(t, "the gateway to see the pause", func() error {
			if a := g.lookup(w.id); a != routing.Paused {
				return fmt.Errorf("it is %v", a)
			}
			return nil
		})
		for range 2 { // after the first the caller resolves again
			if err := g.activator.Activate(t.Context(), routing.Request{
				ID: w.id, Namespace: w.ns, Pool: "resting", Team: "team", Resume: routing.Resume{UID: w.sandbox(w.id).UID},
			}); err != nil {
				return err
			}
		}
		return nil
	}
	for name, tc := range map[string]struct {
		resume func(*resting) error
		kept   bool
	}{
		"by a call": {byCall, true}, "by a request": {byRequest, true},
		"by a call, not kept": {byCall, false}, "by a request, not kept": {byRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newResting(t, 1, withResume)
			next := w.next("sha256:1")
			if !tc.kept {
				w.first.filesCalls.kept = string(make([]byte, 2000)) // the store takes 1000
			}
			was := w.isSaving()
			if err := tc.resume(w); err != nil {
				t.Fatal(err)
			}
			s := w.sandbox(w.id)
			if s.Spec.Paused || s.Spec.Binding == nil || s.Spec.Restore != nil || (s.Spec.Binding.ClaimID != was.Spec.Binding.ClaimID) != tc.kept {
				t.Errorf("the spec is %+v", s.Spec)
			}
			if (next.filesCalls.restored == "the files") != tc.kept {
				t.Errorf("restored %q", next.filesCalls.restored)
			}
		})
	}
}
