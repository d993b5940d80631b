package files

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/bubble"
)

// archiving is a sandboxd that gives one archive at a time, which takes long to be read.
type archiving struct {
	HibernatorAgent
	takes time.Duration
	busy  atomic.Bool
	reads atomic.Int32
}

func (a *archiving) ArchiveAll(context.Context, string, *corev1.Pod) (io.ReadCloser, error) {
	if !a.busy.CompareAndSwap(false, true) {
		return nil, sandboxdclient.ErrBusy
	}
	a.reads.Add(1)
	return &slowArchive{a: a, text: strings.NewReader("{}\nfiles")}, nil
}

func (*archiving) Freeze(context.Context, string, *corev1.Pod, int64) error   { return nil }
func (*archiving) Unfreeze(context.Context, string, *corev1.Pod, int64) error { return nil }
func (*archiving) Probe(context.Context, string, *corev1.Pod, int64) error    { return nil }

type slowArchive struct {
	a    *archiving
	text io.Reader
	once sync.Once
}

func (r *slowArchive) Read(p []byte) (int, error) {
	r.once.Do(func() { time.Sleep(r.a.takes) })
	return r.text.Read(p)
}

func (r *slowArchive) Close() error { r.a.busy.Store(false); return nil }

// While one gateway reads the files of a sandbox that hibernates, another that was ordered
// to save them too waits: it creates no Checkpoints.
func TestTwoGatewaysKeepTheSameFiles(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.sandbox.Spec.PauseOrder, w.sandbox.Spec.Paused, w.sandbox.Spec.PauseMode = 1, true, v1alpha1.PauseHibernate
		if err := w.client.Create(t.Context(), w.sandbox); err != nil {
			t.Fatal(err)
		}
		a := &archiving{takes: 5 * time.Second}
		var calls sync.WaitGroup
		for range 2 {
			cache := routecache.New(10)
			cache.PodsSeen(1 << 40)
			p, err := pause.New(w.client, cache, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			p.SetSaver(NewHibernator(w.x, a, nil))
			calls.Go(func() {
				if err := p.EnforcePause(t.Context(), controlplane.EnforcePause{SandboxID: "i0", ClaimID: "c1", Freeze: true, Order: 1}); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		live := &v1alpha1.Sandbox{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: "i0"}, live); err != nil || !v1alpha1.Hibernated(live) {
			t.Errorf("%v; %+v", err, live.Spec)
		}
		if n := w.uids.Load(); n > 3 { // the sandbox is the first object
			t.Errorf("%d Checkpoints were created", n-1)
		}
		if n := a.reads.Load(); n > 2 {
			t.Errorf("the files were read %d times", n)
		}
	})
}

// A store that does not answer is no fault of the pod: the restore is tried again.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	made, err := w.x.Create(t.Context(), alpha, "i0", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.x.Restorer(t.Context(), "ns", made.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.x.o.Store = stuck{}
	if err := r.Ready(t.Context(), w.sandbox, w.pod); !errors.Is(err, checkpoint.ErrStuck) || activation.VerdictOf(err) == activation.EndSandbox {
		t.Errorf("of a snapshot: %v", err)
	}
	cp := w.objects()[0]
	cp.Spec.Cause, cp.Spec.SandboxUID = v1alpha1.CheckpointPause, "u1"
	if err := w.client.Update(t.Context(), &cp); err != nil {
		t.Fatal(err)
	}
	w.sandbox.Spec.Restore = &v1alpha1.Restore{Checkpoint: cp.Name}
	if _, _, err := NewHibernator(w.x, nil, nil).Ready(t.Context(), w.sandbox, w.pod); !errors.Is(err, checkpoint.ErrStuck) || activation.VerdictOf(err) == activation.FailRequest {
		t.Errorf("of a hibernated sandbox: %v", err)
	}
}

// stuck is a store whose file system hangs.
type stuck struct{ Store }

func (stuck) Get(context.Context, string) (checkpoint.Archive, checkpoint.Info, error) {
	return nil, checkpoint.Info{}, checkpoint.ErrStuck
}

// A ResourceQuota that forbids the Checkpoint of a pause is the limit of snapshots.
func TestAQuotaForbidsAPause(t *testing.T) {
	w := newWorld(t)
	w.quota = true
	a := &archiving{}
	if _, err := NewHibernator(w.x, a, nil).Keep(t.Context(), w.sandbox, w.pod); !errors.Is(err, restapi.ErrSnapshotLimit) {
		t.Error(err)
	}
	if a.busy.Load() {
		t.Error("the archive is not closed")
	}
}
