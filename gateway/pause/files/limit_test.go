package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
)

// put makes a Checkpoint beside the package.
func (w *world) put(namespace, key string, cause v1alpha1.CheckpointCause, phase v1alpha1.CheckpointPhase) {
	w.t.Helper()
	cp := &v1alpha1.Checkpoint{}
	cp.Namespace, cp.Name, cp.Annotations = namespace, newID(), map[string]string{v1alpha1.AnnotationOwner: key}
	cp.Spec.Cause, cp.Status.Phase = cause, phase
	if err := w.client.Create(w.t.Context(), cp); err != nil {
		w.t.Fatal(err)
	}
}

// take makes a snapshot with an API key.
func (w *world) take(key string) error {
	w.files = strings.NewReader("files")
	_, err := w.x.Create(w.t.Context(), routing.KeyOwner{Team: "alpha", Namespace: "ns", KeyID: key}, "i0", nil)
	return err
}

// A namespace, and each API key in it, keeps no more snapshots than its limit, and a
// refused one leaves no object. Checkpoints that are not theirs do not count.
func TestLimits(t *testing.T) {
	w := newWorld(t)
	w.x.o.Limits = limits(3, 2)
	for range 3 {
		w.put("other", "k1", v1alpha1.CheckpointSnapshot, v1alpha1.CheckpointSucceeded)
		w.put("ns", "k1", v1alpha1.CheckpointPause, v1alpha1.CheckpointFailed)
		w.put("ns", "k1", v1alpha1.CheckpointSnapshot, v1alpha1.CheckpointFailed)
	}
	others := len(w.objects())
	for i, step := range []struct {
		key  string
		want error
	}{{"k1", nil}, {"k1", nil}, {"k1", restapi.ErrSnapshotLimit}, {"k2", nil}, {"k2", restapi.ErrSnapshotLimit}, {"", restapi.ErrSnapshotLimit}} {
		if err := w.take(step.key); !errors.Is(err, step.want) {
			t.Errorf("%d, by %q: %v, want %v", i, step.key, err, step.want)
		}
	}
	all, err := w.x.List(t.Context(), "ns")
	if err != nil || len(all) != 3 || len(w.objects()) != others+3 {
		t.Fatalf("%d snapshots, %d objects more, %v", len(all), len(w.objects())-others, err)
	}
	if err := w.x.Delete(t.Context(), "ns", all[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := w.take("k3"); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	w.x.o.Limits = limits(0, 0)
	if err := w.take("k3"); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	w.quota = true
	if err := w.take("k3"); !errors.Is(err, restapi.ErrSnapshotLimit) {
		t.Errorf("beyond a quota: %v", err)
	}
	if len(w.x.reserved.counts) > 0 {
		t.Errorf("it still counts %v", w.x.reserved.counts)
	}
}

// The files of a sandbox that hibernates count as a snapshot, and are refused as one.
func TestLimitOfWhatHibernates(t *testing.T) {
	w := newWorld(t)
	w.x.o.Limits = limits(3, 2)
	s, others := w.sandbox, w.sandbox.DeepCopy()
	s.Annotations, others.Annotations = map[string]string{v1alpha1.AnnotationOwner: "k1"}, map[string]string{v1alpha1.AnnotationOwner: "k2"}
	for i, want := range []struct{ first, second error }{
		{}, {}, {first: restapi.ErrSnapshotLimit}, {restapi.ErrSnapshotLimit, restapi.ErrSnapshotLimit},
	} {
		for of, want := range map[*v1alpha1.Sandbox]error{s: want.first, others: want.second} {
			giveBack, err := w.x.ReserveForPause(t.Context(), of)
			if !errors.Is(err, want) {
				t.Errorf("with %d, of %v: %v, want %v", i, of.Annotations, err, want)
			}
			if err == nil {
				giveBack()
			}
		}
		if err := w.take("k2"); i == 3 && !errors.Is(err, restapi.ErrSnapshotLimit) {
			t.Errorf("a snapshot: %v", err)
		} else if err == nil {
			if err := w.x.Delete(t.Context(), "ns", w.newest()); err != nil {
				t.Fatal(err)
			}
		}
		w.put("ns", "k1", v1alpha1.CheckpointPause, v1alpha1.CheckpointSucceeded)
	}
	if len(w.x.reserved.counts) > 0 {
		t.Errorf("it still counts %v", w.x.reserved.counts)
	}
}

// Of many pauses at once no more may keep files than there is room for: each has its place
// until its object is made, which counts from then on, or until it has failed.
func TestLimitOfManyPausesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.x.o.Limits = limits(2, 0)
	may := func(claim string) (giveBack func(), err error) {
		s := w.sandbox.DeepCopy()
		s.Spec.Binding.ClaimID = claim
		return w.x.ReserveForPause(t.Context(), s)
	}
	first, err := may("c1") // of the sandbox of this world
	second, err2 := may("c2")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	full := func(what string) {
		t.Helper()
		if _, err := may("another"); !errors.Is(err, restapi.ErrSnapshotLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	full("while two have their places")
	w.files = strings.NewReader("{}\nfiles")
	made, err := NewHibernator(w.x, pauseAgent{w}, nil).Keep(t.Context(), w.sandbox, w.pod)
	if err != nil || made == "" {
		t.Fatal(made, err)
	}
	full("with the object of the first, and the place of the second")
	second()
	third, err := may("c3") // the first counts once
	if err != nil {
		t.Errorf("when the second has failed: %v", err)
	} else {
		full("again")
		third()
	}
	first()
	if len(w.x.reserved.counts)+len(w.x.reserved.pauses) > 0 {
		t.Errorf("it still counts %v, and has the reservations %v", w.x.reserved.counts, w.x.reserved.pauses)
	}
}

// pauseAgent is the HibernatorAgent of a world, as far as files are kept.
type pauseAgent struct{ *world }

func (p pauseAgent) ArchiveAll(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error) {
	return p.Archive(ctx, id, pod)
}

func (pauseAgent) InitRestored(context.Context, *v1alpha1.Sandbox, *corev1.Pod, map[string]string, *sandboxdclient.Restoring) error {
	return errors.New("not initialised")
}

// What was made with no API key counts once for its namespace.
func TestLimitOfWhatHasNoKey(t *testing.T) {
	w := newWorld(t)
	w.x.o.Limits = limits(3, 0)
	for i, want := range []error{nil, nil, nil, restapi.ErrSnapshotLimit} {
		if err := w.take(""); !errors.Is(err, want) {
			t.Errorf("with %d: %v, want %v", i, err, want)
		}
	}
}

// newest is the ID of the only snapshot.
func (w *world) newest() string {
	w.t.Helper()
	all, err := w.x.List(w.t.Context(), "ns")
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%d snapshots, %v", len(all), err)
	}
	return all[0].ID
}

// Of many snapshots at once no more are made than the limit allows, although all of them
// list the Checkpoints before the first one is created.
func TestLimitOfManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.x.o.Limits = limits(5, 0)
	const many = 20
	var listing, done sync.WaitGroup
	listing.Add(many)
	w.listed = func() { listing.Done(); listing.Wait() }
	made := make(chan bool, many)
	for range many {
		done.Go(func() {
			cp := &v1alpha1.Checkpoint{}
			cp.Namespace, cp.Name, cp.Spec.Cause = "ns", newID(), v1alpha1.CheckpointSnapshot
			err := w.x.makeObject(t.Context(), alpha, cp)
			if err != nil && !errors.Is(err, restapi.ErrSnapshotLimit) {
				t.Error(err)
			}
			made <- err == nil
		})
	}
	done.Wait()
	close(made)
	n := 0
	for one := range made {
		if one {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d were made", n)
	}
}

// Each snapshot, restore and resume counts once, by what became of it, and so do the bytes
// that are kept, also those of a sandbox that hibernates.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	w.x.o.Metrics, w.x.o.Limits = NewMetrics(reg), limits(1, 0)
	made, err := w.x.Create(t.Context(), alpha, "i0", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.take("k1")
	w.sandbox.Spec.Paused = true
	_ = w.take("k1")
	s := &v1alpha1.Sandbox{}
	s.Name = "i9"
	for _, damaged := range []bool{false, true} {
		if damaged {
			if err := w.folder.Delete(t.Context(), string(w.objects()[0].UID)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := w.x.Restorer(t.Context(), "ns", made.ID)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_ = r.Ready(t.Context(), s, w.pod)
		}
		r.Close()
	}
	w.files = strings.NewReader("{}\nfiles")
	p := NewHibernator(w.x, pauseAgent{w}, nil)
	if _, err := p.Keep(t.Context(), w.sandbox, w.pod); err != nil {
		t.Fatal(err)
	}
	w.sandbox.Spec.Restore = &v1alpha1.Restore{Checkpoint: "lost"}
	if _, _, err := p.Ready(t.Context(), w.sandbox, w.pod); err == nil {
		t.Error("it is resumed without its files")
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "sandlane_snapshot_bytes_total":
				got["bytes"] = uint64(m.GetCounter().GetValue())
			case "sandlane_snapshot_seconds":
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	want := map[string]uint64{
		"bytes": 13, "create done": 1, "create limit": 1, "create conflict": 1, "create failed": 0, "create full": 0,
		"restore done": 1, "restore failed": 1, "resume done": 0, "resume failed": 1,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if o := outcomeOf(publicError(fmt.Errorf("x: %w", checkpoint.ErrFull))); o != outcomeFull {
		t.Errorf("a full store is %q", o)
	}
}

func limits(all, byKey int) func(string) Limits {
	return func(string) Limits { return Limits{Snapshots: all, SnapshotsOfKey: byKey} }
}
