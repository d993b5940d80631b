package files

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

const gib = 1 << 30

// What a namespace and an API key may keep follows what is free, and a part of the store is for
// sandboxes that hibernate alone.
func TestMayKeep(t *testing.T) {
	l := Limits{SnapshotBytes: 2, SnapshotBytesOfKey: 1, PauseBytes: 8, PauseBytesOfKey: 4}
	for name, tc := range map[string]struct {
		free, all, ofKey int64
		pause            bool
		want             error
	}{
		"little is kept":                    {free: 80, all: 10, ofKey: 10},
		"a key alone has its share":         {free: 44, all: 33, ofKey: 33, want: restapi.ErrSnapshotLimit},
		"another key of the namespace":      {free: 44, all: 33, ofKey: 1},
		"the namespace has its share":       {free: 40, all: 60, ofKey: 1, want: restapi.ErrSnapshotLimit},
		"a pause of that namespace":         {free: 40, all: 60, ofKey: 60, pause: true},
		"another namespace":                 {free: 40, all: 1, ofKey: 1},
		"all are greedy":                    {free: 12, all: 1, ofKey: 1, want: checkpoint.ErrFull},
		"a pause then":                      {free: 12, all: 60, ofKey: 40, pause: true},
		"a key whose pauses fill all":       {free: 12, all: 60, ofKey: 60, pause: true, want: restapi.ErrSnapshotLimit},
		"a namespace whose pauses fill all": {free: 8, all: 80, ofKey: 1, pause: true, want: restapi.ErrSnapshotLimit},
		"a pause of another namespace then": {free: 8, all: 1, ofKey: 1, pause: true},
	} {
		room := checkpoint.Room{Free: tc.free * gib, All: 100 * gib}
		if err := mayKeep(l, room, tc.pause, tc.all*gib, tc.ofKey*gib); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if err := mayKeep(Limits{}, checkpoint.Room{Free: gib, All: 2 * gib}, false, 100*gib, 100*gib); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	if err := mayKeep(l, checkpoint.Room{}, false, gib, gib); err != nil {
		t.Errorf("a file system that does not tell its size: %v", err)
	}
}

// roomy is a store of a size of its own.
type roomy struct {
	Store
	room checkpoint.Room
}

func (r roomy) Room(context.Context) (checkpoint.Room, error) { return r.room, nil }

// One key that fills what it may keep is refused, and leaves no object; other keys, and
// sandboxes that hibernate, still fit. What is written at the same moment counts.
func TestBytesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.x.o.Store = roomy{w.folder, checkpoint.Room{Free: 80, All: 160}} // 60 are free for snapshots
	w.x.o.Limits = func(string) Limits { return Limits{SnapshotBytes: 2, SnapshotBytesOfKey: 1, PauseBytes: 8} }
	take := func(key string, bytes int) error {
		w.files = strings.NewReader(strings.Repeat("x", bytes))
		_, err := w.x.Create(t.Context(), routing.KeyOwner{Namespace: "ns", KeyID: key}, "i0", nil)
		return err
	}
	for i, step := range []struct {
		key   string
		bytes int
		want  error
	}{{"k1", 30, nil}, {"k1", 40, restapi.ErrSnapshotLimit}, {"k1", 30, nil}, {"k1", 1, restapi.ErrSnapshotLimit}, {"k2", 60, nil}, {"k3", 1, restapi.ErrSnapshotLimit}} {
		if err := take(step.key, step.bytes); !errors.Is(err, step.want) {
			t.Errorf("%d: %d bytes by %s: %v, want %v", i, step.bytes, step.key, err, step.want)
		}
	}
	if n := len(w.objects()); n != 3 {
		t.Errorf("%d objects, want 3", n)
	}
	w.files = strings.NewReader("{}\nfiles")
	if _, err := NewHibernator(w.x, pauseAgent{w}, nil).Keep(t.Context(), w.sandbox, w.pod); err != nil {
		t.Errorf("a pause: %v", err)
	}

	deleted := w.objects()[0]
	if err := w.client.Delete(t.Context(), &deleted); err != nil {
		t.Fatal(err)
	}
	if _, err := w.x.list(t.Context(), "ns"); err != nil || w.x.ledger.kept["ns"].all != 30+30+60+8 {
		t.Errorf("%v; %d bytes are kept while one is deleted and its data is there", err, w.x.ledger.kept["ns"].all)
	}

	writing := &budget{x: w.x, namespace: "other", key: "k1", bytes: 50}
	w.x.ledger.budgets[writing] = struct{}{}
	cp := &v1alpha1.Checkpoint{}
	cp.Namespace, cp.Annotations = "other", map[string]string{v1alpha1.AnnotationOwner: "k1"}
	for i, want := range []error{nil, restapi.ErrSnapshotLimit} {
		b, err := w.x.newBudget(t.Context(), cp)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.take(10 + i); !errors.Is(err, want) {
			t.Errorf("%d bytes beside 50 that are written: %v, want %v", 10+i, err, want)
		}
		b.end(errors.New("given up"))
	}
	writing.end(nil)
	w.x.ledger.listed("other", time.Now().Add(time.Second), nil) // it was deleted
	if len(w.x.ledger.budgets) != 0 {
		t.Errorf("%d budgets count", len(w.x.ledger.budgets))
	}
}

// Namespaces that nothing is written in are forgotten once their list is old; what is being
// written counts beside what was kept before it.
func TestNamespacesAreForgotten(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		m := &ledger{budgets: map[*budget]struct{}{}}
		for _, namespace := range []string{"gone", "busy"} {
			m.listed(namespace, time.Now(), nil)
			time.Sleep(time.Second)
			m.budgets[&budget{namespace: namespace, done: time.Now()}] = struct{}{}
		}
		m.budgets[&budget{namespace: "busy"}] = struct{}{}
		if m.prune(); len(m.kept) != 2 || len(m.budgets) != 3 {
			t.Errorf("%d namespaces and %d budgets while their lists are new", len(m.kept), len(m.budgets))
		}
		time.Sleep(listedFor)
		if m.prune(); len(m.kept) != 1 || len(m.budgets) != 2 {
			t.Errorf("%d namespaces and %d budgets are kept, want one and its two", len(m.kept), len(m.budgets))
		}
	})
}

// On a volume that really fills, keys that take what they can leave a part to sandboxes that
// hibernate, whose own bytes are bounded too; what is refused leaves nothing on it.
func TestAVolumeThatFills(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); errors.Is(err, unix.EPERM) {
		t.Skip("this container may not mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	w := newWorld(t)
	store, err := checkpoint.OpenFolder(dir, gib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w.x.o.Store, w.folder = store, store
	w.x.o.Limits = func(string) Limits {
		return Limits{Snapshots: 1000, SnapshotBytes: 2, SnapshotBytesOfKey: 1, PauseBytes: 8, PauseBytesOfKey: 4}
	}
	archive := func() io.Reader { return strings.NewReader("{}\n" + strings.Repeat("x", 3<<20)) }
	fill := func(take func() error) (n int, err error) {
		for range 100 {
			w.files = archive()
			if err = take(); err != nil {
				break
			}
			n++
		}
		return n, err
	}
	snapshots := func(key string) error {
		_, err := fill(func() error {
			_, err := w.x.Create(t.Context(), routing.KeyOwner{Namespace: "ns", KeyID: key}, "i0", nil)
			return err
		})
		return err
	}
	room := func() (percent int64) {
		r, err := store.Room(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return 100 * r.Free / r.All
	}
	err = snapshots("k1")
	if free := room(); !errors.Is(err, restapi.ErrSnapshotLimit) || free < 50 {
		t.Errorf("one key: %v, and leaves %d%%", err, free)
	}
	err = snapshots("k2")
	if free := room(); !errors.Is(err, restapi.ErrSnapshotLimit) || free < 35 {
		t.Errorf("another key of its namespace: %v, and leaves %d%%", err, free)
	}
	w.x.o.Limits = nil // as many namespaces that are greedy
	err = snapshots("k3")
	if free := room(); !errors.Is(err, restapi.ErrSnapshotStoreFull) || free < 5 {
		t.Errorf("all: %v, and leave %d%%", err, free)
	}
	p := NewHibernator(w.x, pauseAgent{w}, nil)
	pauses, err := fill(func() error { _, err := p.Keep(t.Context(), w.sandbox, w.pod); return err })
	if free := room(); !errors.Is(err, restapi.ErrSnapshotStoreFull) || pauses == 0 || free > 5 {
		t.Errorf("after %d pauses: %v, %d%% are free", pauses, err, free)
	}
	kept, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	succeeded := 0
	for _, cp := range w.objects() {
		if cp.Status.Phase == v1alpha1.CheckpointSucceeded {
			succeeded++
		}
	}
	if len(kept) != succeeded {
		t.Errorf("%d files for %d Checkpoints that succeeded", len(kept), succeeded)
	}
}
