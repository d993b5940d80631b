package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A container that restarts between the restore and /init has lost the files: nothing is
// initialised there, the resume is taken back, and the next one restores them elsewhere.
func TestRestartAfterTheRestore(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	w.hibernates("paused")
	d := w.next("sha256:1")
	d.filesCalls.restartsAtInit.Store(true)
	x := w.gateways[0].api.sandboxes
	if _, _, err := x.Resume(t.Context(), w.ns, w.id, time.Minute); err == nil || errors.Is(err, routing.ErrUnusable) {
		t.Errorf("the resume: %v", err)
	}
	s := w.hibernates("after a restart")
	if len(d.calls()) != 0 || len(w.checkpoints()) != 1 || w.checkpoints()[0].Name != s.Spec.Restore.Checkpoint {
		t.Errorf("initialised with %+v, kept: %d", d.calls(), len(w.checkpoints()))
	}
	next := w.next("sha256:1")
	if _, was, err := x.Resume(t.Context(), w.ns, w.id, time.Minute); err != nil || !was || next.filesCalls.restored != "the files" {
		t.Errorf("in the next pod: %v, %v, restored %q", was, err, next.filesCalls.restored)
	}
}

// resumes takes paused off, as the write that binds the sandbox does, without a pod.
func (w *resting) resumes() *v1alpha1.Sandbox {
	w.t.Helper()
	s := w.hibernates("before its resume")
	base := s.DeepCopy()
	s.Spec.Paused, s.Spec.PauseOrder = false, s.Spec.PauseOrder+1
	if err := w.c.Patch(w.t.Context(), s, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// The time to run counts from the end of the restore, however long that takes.
func TestTheTimeToRunBeginsAfterTheRestore(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	w.hibernates("paused")
	d := w.next("sha256:1")
	d.filesCalls.restoresFrom = time.Now().Add(3 * time.Second)
	got, was, err := w.gateways[0].api.sandboxes.Resume(t.Context(), w.ns, w.id, time.Second)
	if err != nil || !was || !got.EndAt.After(d.filesCalls.restoresFrom) {
		t.Errorf("%v, %v: it ends %v after the restore", was, err, got.EndAt.Sub(d.filesCalls.restoresFrom))
	}
}

// A request that fails takes no resume back that has a pod: it may be another's. One that
// has none would wait for the controller.
func TestRehibernateIsOfWhatHasNoPod(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	g := w.gateways[0]
	s := w.resumes()
	if err := g.rehibernate(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.hibernates("without a pod")
	s = w.resumes()
	base := s.DeepCopy()
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "anothers", PodName: "p", PodUID: "u"}
	if err := w.c.Patch(t.Context(), s, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	if err := g.rehibernate(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if s := w.sandbox(w.id); s.Spec.Paused || s.Spec.Binding == nil {
		t.Errorf("another's resume was taken back: %+v", s.Spec)
	}
}

// A pause whose sandbox ends while its files are read says that there is none.
func TestPauseOfWhatEndsMeanwhile(t *testing.T) {
	w := newResting(t, 1, nil)
	x := w.gateways[0].api.sandboxes
	w.first.filesCalls.breaks = true // as its pod is gone
	w.first.filesCalls.archive = func() {
		if err := x.End(t.Context(), w.ns, w.id); err != nil {
			t.Error(err)
		}
		w.first.filesCalls.archive = nil
	}
	wantError(t, "the pause", x.Pause(t.Context(), w.ns, w.id, false), restapi.ErrNotFound)
}

// A resume that has lost its pod is gone on with by the next request, which need not be one
// that may make sandboxes of the pool.
func TestWakeOfWhatHasLostItsPod(t *testing.T) {
	w := newResting(t, 1, func(n *restapi.NewSandbox) { n.AutoPause, n.AutoResume, n.Lifetime = true, true, 10*time.Minute })
	w.pause()
	was := w.hibernates("paused")
	base := was.DeepCopy()
	was.Spec.Timeouts.AutoResume = v1alpha1.AutoResumeAlways
	if err := w.c.Patch(t.Context(), was, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	w.resumes()
	g, d := w.gateways[0], w.next("sha256:1")
	kubetest.Eventually(t, "the index to show that requests resume it", func() error {
		if a := g.index.Resolve(w.id); a.State != routing.Paused || !a.Resumes {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	err := g.activator.Activate(t.Context(),
		routing.Request{ID: w.id, Namespace: w.ns, Pool: "resting", Team: "team", Resume: routing.Resume{UID: was.UID}})
	if s := w.sandbox(w.id); err != nil || s.Spec.Restore != nil || d.filesCalls.restored != "the files" {
		t.Errorf("%v, restored %q, the spec is %+v", err, d.filesCalls.restored, s.Spec)
	}
}

// The end of a sandbox whose files are being kept is not moved, and a caller may try again;
// one that hibernates has no end to move.
func TestEndOfWhatIsKept(t *testing.T) {
	w := newResting(t, 1, nil)
	setEnd := func() error {
		_, err := w.gateways[0].api.sandboxes.SetEnd(t.Context(), w.ns, w.id, time.Now().Add(time.Minute), true)
		return err
	}
	var meanwhile error
	w.first.filesCalls.archive = func() { meanwhile = setEnd() }
	w.pause()
	wantError(t, "while its files are read", meanwhile, restapi.ErrPausing)
	err := setEnd()
	if wantError(t, "hibernated", err, restapi.ErrPaused); errors.Is(err, restapi.ErrPausing) {
		t.Errorf("hibernated: %v", err)
	}
	w.hibernates("after it")
}

// The end of a sandbox whose files are being restored is not moved: with one it would be
// bound to end before it runs.
func TestEndOfWhatIsRestored(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	s := w.resumes()
	for _, shorten := range []bool{true, false} {
		_, err := w.gateways[0].api.sandboxes.SetEnd(t.Context(), w.ns, w.id, time.Now().Add(time.Minute), shorten)
		wantError(t, "moving it", err, restapi.ErrResuming)
	}
	if now := w.sandbox(w.id); now.Generation != s.Generation {
		t.Errorf("it was written: %+v", now.Spec)
	}
}

// A resume of a sandbox that is killed meanwhile finds no sandbox, as any later call does.
func TestKilledWhileItIsResumed(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	w.hibernates("paused")
	x := w.gateways[0].api.sandboxes
	killed := errors.New("not killed")
	w.next("sha256:1").filesCalls.restoring = sync.OnceFunc(func() { killed = x.End(t.Context(), w.ns, w.id) })
	_, _, err := x.Resume(t.Context(), w.ns, w.id, time.Minute)
	wantError(t, "the kill", killed, nil)
	wantError(t, "the resume", err, restapi.ErrNotFound)
}

// Rules of a sandbox that hibernates are those of its next pod.
func TestRulesOfWhatHibernates(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	w.hibernates("paused")
	x := w.gateways[0].api.sandboxes
	wantError(t, "setting them", x.SetEgress(t.Context(), w.ns, w.id, rules("", "10.0.0.0/8")), nil)
	if got := said(w.policyOfSandbox(w.id)); got != but("10.0.0.0/8 ") {
		t.Errorf("the rules are %q", got)
	}
	w.next("sha256:1")
	if _, _, err := x.Resume(t.Context(), w.ns, w.id, time.Minute); err != nil {
		t.Fatal(err)
	}
	if pod := w.last(); pod.Labels[v1alpha1.LabelRules] != v1alpha1.RulesOwn {
		t.Errorf("its pod's labels are %v", pod.Labels)
	}
}

// A gateway without a store says so before it takes a pod.
func TestResumeWithoutAStore(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	generation := w.hibernates("paused").Generation
	w.next("sha256:1")
	without := w.gateway()
	_, _, err := without.api.sandboxes.Resume(t.Context(), w.ns, w.id, time.Minute)
	wantError(t, "a resume", err, restapi.ErrNoStore)
	if s := w.hibernates("after it"); s.Generation != generation || v1alpha1.PhaseOf(w.last()) != v1alpha1.PodIdle {
		t.Errorf("it was written: %+v", s.Spec)
	}
}

// What cannot be restored takes no pod: files that are lost none at all, those that pods
// refuse two.
func TestWhatCannotBeRestoredEmptiesNoPool(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	w.hibernates("paused")
	x := w.gateways[0].api.sandboxes
	for i := range 3 {
		w.next("sha256:1").filesCalls.refuse = http.StatusUnprocessableEntity
		if _, _, err := x.Resume(t.Context(), w.ns, w.id, time.Minute); err == nil {
			t.Error("it is resumed")
		}
		w.hibernates("refused")
		if idle := v1alpha1.PhaseOf(w.last()) == v1alpha1.PodIdle; idle != (i == 2) {
			t.Errorf("resume %d: the pod is %s", i, v1alpha1.PhaseOf(w.last()))
		}
	}
	lost := newResting(t, 1, nil)
	lost.pause()
	lost.hibernates("paused")
	if err := os.Remove(filepath.Join(lost.folder, string(lost.checkpoints()[0].UID))); err != nil {
		t.Fatal(err)
	}
	lost.next("sha256:1")
	if _, _, err := lost.gateways[0].api.sandboxes.Resume(t.Context(), lost.ns, lost.id, time.Minute); err == nil {
		t.Error("what is lost is resumed")
	}
	s := lost.sandbox(lost.id)
	base := s.DeepCopy()
	s.Spec.Timeouts.OnTimeout, s.Spec.Timeouts.AutoResume = v1alpha1.TimeoutPause, v1alpha1.AutoResumeAlways
	if err := lost.c.Patch(t.Context(), s, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	at := lost.gateways[0]
	wantError(t, "a request", at.activator.Activate(t.Context(),
		routing.Request{ID: lost.id, Namespace: lost.ns, Pool: "resting", Team: "team", Resume: routing.Resume{UID: s.UID}}), routing.ErrNotRestorable)
	if v1alpha1.PhaseOf(lost.last()) != v1alpha1.PodIdle {
		t.Errorf("the pod is %s", v1alpha1.PhaseOf(lost.last()))
	}
}

// No more sandboxes hibernate by the REST API than snapshots may be kept: nothing is written.
func TestLimitOfHibernations(t *testing.T) {
	w := newResting(t, 1, nil)
	limited := w.gatewayWith(kubetest.Config(t), func(o *Options) { o.CheckpointDir, o.MaxSnapshots = w.folder, 1 })
	cp := &v1alpha1.Checkpoint{}
	cp.Namespace, cp.Name = w.ns, newID()
	cp.Spec.SandboxID, cp.Spec.SandboxUID, cp.Spec.ClaimID, cp.Spec.Cause = "another", "u", "c", v1alpha1.CheckpointPause
	cp.Spec.Contents = []v1alpha1.CheckpointContent{v1alpha1.CheckpointFilesystem}
	if err := w.c.Create(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	generation := w.sandbox(w.id).Generation
	wantError(t, "a pause", limited.api.sandboxes.Pause(t.Context(), w.ns, w.id, false), restapi.ErrSnapshotLimit)
	if s := w.sandbox(w.id); s.Generation != generation || len(w.first.carriedOut()) != 0 {
		t.Errorf("the spec is %+v, the freezer was asked to %v", s.Spec, w.first.carriedOut())
	}
}

// What could not be restored, since nobody would know what its images were, is refused before
// it is frozen.
func TestHibernationWithoutDigests(t *testing.T) {
	w := newResting(t, 1, nil)
	pod, generation := w.last(), w.sandbox(w.id).Generation
	pod.Status.ContainerStatuses = nil
	if err := w.c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantError(t, "a pause", w.gateways[0].api.sandboxes.Pause(t.Context(), w.ns, w.id, false), restapi.ErrInvalid)
	if s := w.sandbox(w.id); s.Generation != generation || len(w.first.carriedOut()) != 0 {
		t.Errorf("the spec is %+v, the freezer was asked to %v", s.Spec, w.first.carriedOut())
	}
	wantError(t, "freezing it", w.gateways[0].api.sandboxes.Pause(t.Context(), w.ns, w.id, true), nil)
}

// A pause that fails gives its place among the kept files back.
func TestLimitAfterAHibernationThatFails(t *testing.T) {
	w := newResting(t, 1, nil)
	limited := w.gatewayWith(kubetest.Config(t), func(o *Options) { o.CheckpointDir, o.MaxSnapshots = w.folder, 1 })
	w.first.answerUnfreezes(http.StatusNotImplemented)
	for range 3 {
		wantError(t, "what cannot be frozen", limited.api.sandboxes.Pause(t.Context(), w.ns, w.id, false), restapi.ErrInvalid)
	}
	w.first.answerUnfreezes(0)
	wantError(t, "in the end", limited.api.sandboxes.Pause(t.Context(), w.ns, w.id, false), nil)
	w.hibernates("in the end")
}
