package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// one is a Checkpoint that was made at the start.
func one(name string, status v1alpha1.CheckpointStatus) *v1alpha1.Checkpoint {
	cp := &v1alpha1.Checkpoint{Status: status}
	cp.Namespace, cp.Name, cp.UID, cp.Finalizers = "ns", name, types.UID("uid-"+name), []string{v1alpha1.FinalizerCheckpoint}
	cp.CreationTimestamp = metav1.NewTime(start)
	return cp
}

type world struct {
	t      *testing.T
	client client.Client
	store  *checkpoint.Folder
	clock  *testingclock.FakeClock
	r      *Reconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	folder, err := checkpoint.OpenFolder(t.TempDir(), 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Checkpoint{}).WithObjects(objects...).Build()
	w := &world{t: t, client: c, store: folder, clock: testingclock.NewFakeClock(start)}
	w.r = &Reconciler{Client: c, Live: c, Store: folder, Clock: w.clock}
	return w
}

func (w *world) keep(name string) {
	w.t.Helper()
	if _, err := w.store.Put(w.t.Context(), "uid-"+name, strings.NewReader("data")); err != nil {
		w.t.Fatal(err)
	}
}

// reconcile runs until nothing is to be done at this time, and returns what is left of
// the Checkpoint ("" if it is gone) and when it is looked at again.
func (w *world) reconcile(name string) (phase v1alpha1.CheckpointPhase, again time.Duration) {
	w.t.Helper()
	req := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
	for range 3 { // each write brings the next look
		res, err := w.r.Reconcile(w.t.Context(), req)
		if err != nil {
			w.t.Fatal(err)
		}
		again = res.RequeueAfter
	}
	cp := &v1alpha1.Checkpoint{}
	if err := w.client.Get(w.t.Context(), req.NamespacedName, cp); err != nil {
		return "", again
	}
	return cp.Status.Phase, again
}

func (w *world) kept() string {
	w.t.Helper()
	all, err := w.store.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	ids := []string{}
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return fmt.Sprint(ids)
}

func TestWhatGatewaysLeave(t *testing.T) {
	w := newWorld(t, one("pending", v1alpha1.CheckpointStatus{}), one("creating", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointCreating}))
	w.keep("creating")
	for _, name := range []string{"pending", "creating"} {
		if phase, again := w.reconcile(name); phase == v1alpha1.CheckpointFailed || again != createPatience {
			t.Errorf("%s at first: %q, again after %s", name, phase, again)
		}
	}
	w.clock.Step(createPatience)
	for _, name := range []string{"pending", "creating"} {
		if phase, again := w.reconcile(name); phase != v1alpha1.CheckpointFailed || again != failedTTL {
			t.Errorf("%s in the end: %q, again after %s", name, phase, again)
		}
	}
	w.clock.Step(failedTTL)
	for _, name := range []string{"pending", "creating"} {
		if phase, _ := w.reconcile(name); phase != "" {
			t.Errorf("%s is kept: %q", name, phase)
		}
	}
	if got := w.kept(); got != "[]" {
		t.Errorf("data is kept: %s", got)
	}
}

// What is being made gets its time also where this process's clock is far ahead of the API
// server's.
func TestPatienceByOneClock(t *testing.T) {
	w := newWorld(t, one("a", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointCreating}))
	w.clock.Step(time.Hour)
	if phase, again := w.reconcile("a"); phase != v1alpha1.CheckpointCreating || again != createPatience {
		t.Errorf("%q, again after %s", phase, again)
	}
}

func TestWhatSucceeded(t *testing.T) {
	status := v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded, CompletedAt: new(metav1.NewTime(start.Add(time.Minute)))}
	short := one("short", status)
	short.Spec.KeepFor = &metav1.Duration{Duration: time.Hour}
	w := newWorld(t, one("long", status), short)
	w.keep("long")
	w.keep("short")
	if phase, again := w.reconcile("short"); phase != v1alpha1.CheckpointSucceeded || again != time.Hour+time.Minute {
		t.Errorf("%q, again after %s", phase, again)
	}
	w.clock.Step(1000 * time.Hour)
	if phase, again := w.reconcile("long"); phase != v1alpha1.CheckpointSucceeded || again != 0 {
		t.Errorf("%q, again after %s", phase, again)
	}
	if phase, _ := w.reconcile("short"); phase != "" || w.kept() != "[uid-long]" {
		t.Errorf("%q, kept %s", phase, w.kept())
	}
	if err := w.client.Delete(t.Context(), one("long", status)); err != nil {
		t.Fatal(err)
	}
	if phase, _ := w.reconcile("long"); phase != "" || w.kept() != "[]" {
		t.Errorf("a deleted one: %q, kept %s", phase, w.kept())
	}
}

// failing is a store that deletes nothing.
type failing struct{ *checkpoint.Folder }

var errStore = errors.New("the store is away")

func (failing) Delete(context.Context, string) error { return errStore }

// An object stays as long as its data does.
func TestDataThatCannotBeDeleted(t *testing.T) {
	w := newWorld(t, one("a", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded}))
	w.keep("a")
	w.r.Store = failing{w.store}
	if err := w.client.Delete(t.Context(), one("a", v1alpha1.CheckpointStatus{})); err != nil {
		t.Fatal(err)
	}
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}})
	cp := &v1alpha1.Checkpoint{}
	got := w.client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, cp)
	if !errors.Is(err, errStore) || got != nil || cp.Status.Phase != v1alpha1.CheckpointTerminating {
		t.Errorf("%v; %v, %q", err, got, cp.Status.Phase)
	}
	w.r.Store = w.store
	if phase, _ := w.reconcile("a"); phase != "" || w.kept() != "[]" {
		t.Errorf("%q, kept %s", phase, w.kept())
	}
}

// Data that no object has named for a day goes; what a Checkpoint of any phase names stays.
// The day begins anew for what was named meanwhile, and with each put.
func TestSweep(t *testing.T) {
	w := newWorld(t, one("a", v1alpha1.CheckpointStatus{}))
	w.clock.SetTime(time.Now()) // the store's clock is the machine's
	for _, name := range []string{"a", "b", "c"} {
		w.keep(name)
	}
	partial := false
	s := &Sweeper{Live: w.client, Store: w.store, Clock: w.clock, Partial: func(context.Context) error { partial = true; return nil }}
	sweep := func(step time.Duration, want string) {
		t.Helper()
		w.clock.Step(step)
		if err := s.Sweep(t.Context()); err != nil || w.kept() != want {
			t.Errorf("after %v: %v, kept %s, want %s", step, err, w.kept(), want)
		}
	}
	sweep(0, "[uid-a uid-b uid-c]")
	if !partial {
		t.Error("partial archives are not swept")
	}
	sweep(23*time.Hour, "[uid-a uid-b uid-c]")
	back := one("c", v1alpha1.CheckpointStatus{}) // by another restore of etcd
	if err := w.client.Create(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	sweep(2*time.Hour, "[uid-a uid-c]")
	back.Finalizers = nil
	if err := errors.Join(w.client.Update(t.Context(), back), w.client.Delete(t.Context(), back)); err != nil {
		t.Fatal(err)
	}
	sweep(time.Hour, "[uid-a uid-c]")
	sweep(23*time.Hour, "[uid-a uid-c]")
	sweep(time.Hour, "[uid-a]")
}

// What was put after the Checkpoints were listed, by the store's clock, stays however long
// this process has seen data of that name.
func TestSweepOfWhatIsNewerThanTheList(t *testing.T) {
	w := newWorld(t)
	w.keep("a")
	s := &Sweeper{Live: w.client, Store: w.store, Clock: w.clock} // whose clock is behind the store's
	for range 3 {
		if err := s.Sweep(t.Context()); err != nil || w.kept() != "[uid-a]" {
			t.Errorf("%v, kept %s", err, w.kept())
		}
		w.clock.Step(48 * time.Hour)
	}
}

// A sweep that cannot list the objects deletes nothing.
func TestSweepWithoutAList(t *testing.T) {
	w := newWorld(t)
	w.keep("a")
	s := &Sweeper{Live: noReader{}, Store: w.store}
	if err := s.Sweep(t.Context()); !errors.Is(err, errStore) || w.kept() != "[uid-a]" {
		t.Errorf("%v, kept %s", err, w.kept())
	}
}

type noReader struct{ client.Reader }

func (noReader) List(context.Context, client.ObjectList, ...client.ListOption) error { return errStore }

// A controller without a store, as after a rollback to before there was one, lets a Checkpoint
// go that is deleted, since its namespace would stay for ever otherwise, and ends the sandbox
// of such a namespace that needs one.
func TestWithoutAStore(t *testing.T) {
	deleted := metav1.NewTime(start)
	snapshot, paused := one("snapshot", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded}), one("paused", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded})
	paused.Spec = v1alpha1.CheckpointSpec{Cause: v1alpha1.CheckpointPause, SandboxID: "s", SandboxUID: "s-uid", ClaimID: "c"}
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s-uid", Generation: 1}, Spec: v1alpha1.SandboxSpec{
		Namespace: "ns", Paused: true, PauseMode: v1alpha1.PauseHibernate, Restore: &v1alpha1.Restore{Checkpoint: "paused"},
	}}
	snapshot.DeletionTimestamp, paused.DeletionTimestamp = &deleted, &deleted
	w := newWorld(t, snapshot, paused, s)
	w.r.Store = nil
	if phase, _ := w.reconcile("snapshot"); phase != "" {
		t.Errorf("the snapshot is %s", phase)
	}
	if phase, _ := w.reconcile("paused"); phase != v1alpha1.CheckpointSucceeded {
		t.Errorf("the files that a sandbox needs are %q", phase)
	}
	ns := &corev1.Namespace{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "ns"}, ns); err != nil {
		t.Fatal(err)
	}
	ns.Finalizers = []string{"kubernetes"}
	if err := errors.Join(w.client.Update(t.Context(), ns), w.client.Delete(t.Context(), ns)); err != nil {
		t.Fatal(err)
	}
	if phase, _ := w.reconcile("paused"); phase != "" {
		t.Errorf("the files of a sandbox whose namespace goes are %q", phase)
	}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "s"}, s); err != nil || s.Spec.End == nil {
		t.Errorf("the sandbox: %v, %+v", err, s.Spec.End)
	}
}
