package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A pause without the memory keeps the files of the frozen sandbox, then gives its pod up;
// a resume restores them in another pod, and the environment, before any request is routed.
func TestHibernateAndResume(t *testing.T) {
	w := newResting(t, 2, nil)
	was := w.sandbox(w.id)
	w.pause()
	s := w.hibernates("paused")
	if got := fmt.Sprint(w.first.carriedOut()); got != fmt.Sprintf("[unfreeze %d freeze %d archive]", was.Spec.PauseOrder, was.Spec.PauseOrder+1) {
		t.Errorf("the first pod was asked to %s", got)
	}
	all := w.checkpoints()
	if len(all) != 1 || all[0].Name != s.Spec.Restore.Checkpoint || all[0].Spec.Cause != v1alpha1.CheckpointPause || all[0].Spec.SandboxUID != string(s.UID) ||
		all[0].Status.Phase != v1alpha1.CheckpointSucceeded || all[0].Status.Images["main"] != "sha256:1" || all[0].Annotations[v1alpha1.AnnotationOwner] != s.Annotations[v1alpha1.AnnotationOwner] {
		t.Errorf("checkpoints: %+v", all)
	}
	for i, g := range w.gateways {
		kubetest.Eventually(t, "gateway to see it", func() error {
			if a := g.lookup(w.id); a != routing.Paused || g.cache.Get(w.id) != nil {
				return fmt.Errorf("gateway %d: it is %v, its route is %v", i, a, g.cache.Get(w.id))
			}
			return nil
		})
	}
	x := w.gateways[1].api.sandboxes
	if got, err := x.Get(t.Context(), w.ns, w.id); err != nil || !got.Paused || got.Frozen || !got.Saved {
		t.Errorf("get: %+v, %v", got, err)
	}
	wantError(t, "pausing it again", x.Pause(t.Context(), w.ns, w.id, false), restapi.ErrNotRunning)

	d := w.next("sha256:1")
	end := time.Now().Add(10 * time.Minute)
	got, resumed, err := x.Resume(t.Context(), w.ns, w.id, 10*time.Minute)
	if err != nil || !resumed || got.Paused || got.EndAt.Sub(end).Abs() > 10*time.Second {
		t.Fatalf("resume: %+v, %v, %v", got, resumed, err)
	}
	s = w.sandbox(w.id)
	if s.Spec.Paused || s.Spec.Restore != nil || s.Spec.Binding == nil || s.Spec.Binding.ClaimID == was.Spec.Binding.ClaimID {
		t.Errorf("the spec is %+v", s.Spec)
	}
	if d.filesCalls.restored != "the files" || len(d.calls()) == 0 || d.calls()[0].Env["MINE"] != "mine" || d.calls()[0].Token != w.first.calls()[0].Token {
		t.Errorf("restored %q, initialised with %+v", d.filesCalls.restored, d.calls())
	}
	for i, g := range w.gateways {
		kubetest.Eventually(t, "a route", func() error {
			if err := g.activate(t, w.world, w.id, "resting"); err != nil || g.cache.Get(w.id) == nil {
				return fmt.Errorf("gateway %d: %w, %v", i, err, g.cache.Get(w.id))
			}
			if r := g.cache.Get(w.id); r.Addr.String() != d.addr {
				t.Fatalf("gateway %d routes to %s", i, r.Addr)
			}
			return nil
		})
	}
	// It may be paused again, in any mode.
	if err := x.Pause(t.Context(), w.ns, w.id, true); err != nil || w.sandbox(w.id).Spec.PauseMode != v1alpha1.PauseFreeze {
		t.Errorf("freezing it: %v", err)
	}
}

// activate is route of a sandbox of another pool.
func (g *gateway) activate(t *testing.T, w *world, id, pool string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return g.activator.Activate(ctx, routing.Request{ID: id, Namespace: w.ns, Pool: pool, Team: "team"})
}

// Files are restored in pods of their images alone. A pod that is known to have others is
// not taken; one that turns out to is given up.
func TestSaveMismatch(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	s := w.hibernates("paused")
	other := w.next("sha256:2")
	_, _, err := w.gateways[0].api.sandboxes.Resume(t.Context(), w.ns, w.id, time.Minute)
	wantError(t, "a resume", err, restapi.ErrInvalid)
	if now := w.hibernates("after it"); now.Generation != s.Generation || v1alpha1.PhaseOf(w.last()) != v1alpha1.PodIdle {
		t.Errorf("it was written: %+v, the pod is %s", now.Spec, v1alpha1.PhaseOf(w.last()))
	}
	pod := w.last()
	bound := s.DeepCopy()
	bound.Spec.Paused, bound.Spec.Binding = false, &v1alpha1.Binding{ClaimID: "c", PodName: pod.Name, PodUID: string(pod.UID)}
	_, _, err = w.gateways[0].paused.Ready(t.Context(), bound, pod)
	wantError(t, "in a pod that it has", err, files.ErrSaveMismatch)
	if activation.VerdictOf(err) != activation.FailRequest || other.filesCalls.restored != "" || len(other.calls()) != 0 {
		t.Errorf("%v, restored %q, initialised with %+v", err, other.filesCalls.restored, other.calls())
	}
	// A claim changes the idle image of a pod, so what it runs before says nothing.
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	wantError(t, "a pod of the pool", w.gateways[0].paused.Fits(t.Context(), s, name), files.ErrSaveMismatch)
	pod.Annotations[v1alpha1.AnnotationImage] = "a"
	if err := w.c.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := w.gateways[0].paused.Fits(t.Context(), s, name); err != nil {
		t.Errorf("a pod with an idle image: %v", err)
	}
}

// A resume that finds no pod has written nothing; one whose pod refuses the files is taken
// back, and the next pod gets them.
func TestResumesThatFail(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	generation := w.hibernates("paused").Generation
	x := w.gateways[0].api.sandboxes
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	_, _, err := x.Resume(ctx, w.ns, w.id, time.Minute)
	cancel()
	wantError(t, "without a pod", err, restapi.ErrNoCapacity)
	if s := w.hibernates("without a pod"); s.Generation != generation {
		t.Errorf("it was written: %+v", s.Spec)
	}
	refuses := w.next("sha256:1")
	refuses.filesCalls.refuse = http.StatusUnprocessableEntity
	if _, _, err = x.Resume(t.Context(), w.ns, w.id, time.Minute); err == nil || errors.Is(err, restapi.ErrNotFound) {
		t.Errorf("with a pod that refuses: %v", err)
	}
	w.hibernates("with a pod that refuses")
	d := w.next("sha256:1")
	if _, was, err := x.Resume(t.Context(), w.ns, w.id, time.Minute); err != nil || !was || d.filesCalls.restored != "the files" {
		t.Errorf("in the end: %v, %v, restored %q", was, err, d.filesCalls.restored)
	}
}

// What was kept of another sandbox is not restored, whatever a Sandbox says.
func TestForeignCheckpoint(t *testing.T) {
	w := newResting(t, 1, nil)
	w.pause()
	w.hibernates("paused")
	cp := w.checkpoints()[0]
	foreign := cp.DeepCopy()
	foreign.ResourceVersion, foreign.Name, foreign.UID, foreign.Spec.SandboxUID = "", cp.Name, "", "another"
	cp.Finalizers = nil
	if err := errors.Join(w.c.Update(t.Context(), &cp), w.c.Delete(t.Context(), &cp), w.c.Create(t.Context(), foreign)); err != nil {
		t.Fatal(err)
	}
	foreign.Status = cp.Status
	if err := w.c.Status().Update(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(w.folder, string(cp.UID)))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.folder, string(foreign.UID)), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := w.next("sha256:1")
	if _, _, err := w.gateways[0].api.sandboxes.Resume(t.Context(), w.ns, w.id, time.Minute); err == nil {
		t.Error("it is resumed")
	}
	if d.filesCalls.restored != "" || len(d.calls()) != 0 {
		t.Errorf("restored %q, initialised with %+v", d.filesCalls.restored, d.calls())
	}
	w.hibernates("after that")
}

// A gateway goes on with the resume that another has begun, also if that has initialised
// sandboxd already and did not say so.
func TestResumeOfAnotherGateway(t *testing.T) {
	w := newResting(t, 2, nil)
	w.pause()
	s := w.hibernates("paused")
	d := w.next("sha256:1")
	if _, _, err := w.gateways[0].api.sandboxes.Resume(t.Context(), w.ns, w.id, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	now := w.sandbox(w.id)
	// As if the last write had not been made: the API server refuses to set it back.
	behind := now.DeepCopy()
	behind.Spec.Restore = s.Spec.Restore
	pod := &corev1.Pod{}
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: now.Spec.Binding.PodName}, pod); err != nil {
		t.Fatal(err)
	}
	restored, written, err := w.gateways[1].paused.Ready(t.Context(), behind, pod)
	if err != nil || written || restored.Spec.Restore != nil || restored.Generation != now.Generation {
		t.Errorf("%+v, written %v, %v", restored, written, err)
	}
	if d.filesCalls.restored != "the files" || len(d.calls()) != 2 {
		t.Errorf("restored %q, initialised %d times", d.filesCalls.restored, len(d.calls()))
	}
	// It was paused again since, and the resume is not carried out: that the other gateway has
	// restored it does not show that it runs now.
	if err := w.gateways[0].api.sandboxes.Pause(t.Context(), w.ns, w.id, true); err != nil {
		t.Fatal(err)
	}
	d.answerUnfreezes(http.StatusInternalServerError)
	if _, _, err := w.gateways[0].api.sandboxes.Resume(t.Context(), w.ns, w.id, 10*time.Minute); err == nil {
		t.Fatal("it is resumed")
	}
	for range 2 { // the second time it must not have noted either that it runs
		if err := w.gateways[1].makeReady(t.Context(), behind, pod); err == nil {
			t.Error("what is frozen is routed to")
		}
		if err := w.gateways[1].own.pauser.EnsureAwake(t.Context(), w.sandbox(w.id), pod); err == nil {
			t.Error("what is frozen is noted as awake")
		}
	}
	d.answerUnfreezes(0)
	if err := w.gateways[1].makeReady(t.Context(), behind, pod); err != nil {
		t.Error(err)
	}
}

// Files that cannot be kept leave the sandbox as it was: it runs for as long as was left
// when it was paused, however long its files were read.
func TestHibernationThatFails(t *testing.T) {
	w := newResting(t, 1, nil)
	end := w.sandbox(w.id).Spec.Timeouts.EndAt
	const reads = 2 * time.Second // longer than the second to which an end is rounded up
	w.first.filesCalls.archive = func() {
		begun := time.Now()
		kubetest.Eventually(t, "its files to be read", func() error {
			if read := time.Since(begun); read < reads {
				return fmt.Errorf("they have been read for %s", read)
			}
			return nil
		})
	}
	w.first.filesCalls.kept = string(make([]byte, 2000)) // the store takes 1000
	wantError(t, "too many files", w.gateways[0].api.sandboxes.Pause(t.Context(), w.ns, w.id, false), restapi.ErrSnapshotTooLarge)
	s := w.sandbox(w.id)
	if s.Spec.Paused || s.Spec.Binding == nil || s.Spec.Restore != nil || s.Spec.Timeouts.EndAt.Sub(end.Time) < reads || len(w.checkpoints()) != 0 {
		t.Errorf("the spec is %+v, kept %d", s.Spec, len(w.checkpoints()))
	}
	if orders := w.first.carriedOut(); orders[len(orders)-1] != fmt.Sprintf("unfreeze %d", s.Spec.PauseOrder) {
		t.Errorf("the freezer was asked to %v", orders)
	}
}

// The pool, and a store, must allow it; nothing is written otherwise.
func TestHibernationThatIsNotAllowed(t *testing.T) {
	w, d, g, _, id := made(t)
	generation := w.sandbox(id).Generation
	wantError(t, "no store, and the pool freezes alone", g.api.sandboxes.Pause(t.Context(), w.ns, id, false), restapi.ErrNoStore)
	w.poolPauses(g, "base", v1alpha1.PauseHibernate)
	wantError(t, "no store", g.api.sandboxes.Pause(t.Context(), w.ns, id, false), restapi.ErrNoStore)
	wantError(t, "the pool hibernates alone", g.api.sandboxes.Pause(t.Context(), w.ns, id, true), restapi.ErrInvalid)
	if s := w.sandbox(id); s.Generation != generation || len(d.carriedOut()) != 0 {
		t.Errorf("the spec is %+v, the freezer was asked to %v", s.Spec, d.carriedOut())
	}
}

// With a store the pool decides.
func TestHibernationThatThePoolForbids(t *testing.T) {
	w := newResting(t, 1, nil)
	w.poolPauses(w.gateways[0], "resting", v1alpha1.PauseFreeze)
	wantError(t, "the pool freezes alone", w.gateways[0].api.sandboxes.Pause(t.Context(), w.ns, w.id, false), restapi.ErrInvalid)
}

// poolPauses lets a pool's sandboxes be paused in this mode alone, and returns when the
// gateway has seen that.
func (w *world) poolPauses(g *gateway, name string, mode v1alpha1.PauseMode) {
	w.t.Helper()
	pool := &v1alpha1.SandboxPool{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, pool); err != nil {
		w.t.Fatal(err)
	}
	pool.Spec.Pause = &v1alpha1.PoolPause{Modes: []v1alpha1.PauseMode{mode}}
	if err := w.c.Update(w.t.Context(), pool); err != nil {
		w.t.Fatal(err)
	}
	kubetest.Eventually(w.t, "the gateway to see the pool", func() error {
		seen, _ := g.index.Pool(w.ns, name)
		for _, m := range []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate} {
			if v1alpha1.AllowsPause(seen.Spec, m) != (m == mode) {
				return errors.New("it has not")
			}
		}
		return nil
	})
}

// The controller has a gateway finish what another began: it freezes, keeps the files, and
// gives the pod up.
func TestEnforcePauseHibernates(t *testing.T) {
	w := newResting(t, 1, nil)
	s := w.isSaving()
	q := controlplane.EnforcePause{SandboxID: w.id, ClaimID: s.Spec.Binding.ClaimID, Freeze: true, Saves: true, Order: s.Spec.PauseOrder}
	wantError(t, "the order", w.gateways[0].own.pauser.EnforcePause(t.Context(), q), nil)
	w.hibernates("after it")
	wantError(t, "again", w.gateways[0].own.pauser.EnforcePause(t.Context(), q), writes.ErrStale)
}

// Requests resume what hibernates if its record says Always, many of them once; one that
// asks for its memory they do not.
func TestWakeOfWhatHibernates(t *testing.T) {
	w := newResting(t, 2, func(n *restapi.NewSandbox) { n.AutoPause, n.AutoResume, n.Lifetime = true, true, 10*time.Minute })
	w.pause()
	was := w.hibernates("paused")
	wake := func(at *gateway) error {
		return at.activator.Activate(t.Context(),
			routing.Request{ID: w.id, Namespace: w.ns, Pool: "resting", Team: "team", Resume: routing.Resume{UID: was.UID}})
	}
	one, two := w.next("sha256:1"), w.next("sha256:1")
	if err := wake(w.gateways[0]); err != nil || w.hibernates("with memory").Generation != was.Generation {
		t.Errorf("with memory: %v", err)
	}
	base := was.DeepCopy()
	was.Spec.Timeouts.AutoResume = v1alpha1.AutoResumeAlways
	if err := w.c.Patch(t.Context(), was, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 60)
	for i := range cap(errs) {
		go func() { errs <- wake(w.gateways[i%2]) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s := w.sandbox(w.id)
	if s.Spec.Paused || s.Spec.Restore != nil || s.Spec.Timeouts.EndAt == nil || time.Until(s.Spec.Timeouts.EndAt.Time) < 9*time.Minute {
		t.Errorf("the spec is %+v", s.Spec)
	}
	if a, b := one.filesCalls.restored, two.filesCalls.restored; a+b != "the files" {
		t.Errorf("restored %q and %q", a, b)
	}
}
