package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// ErrMismatch says that the pod runs other images than the pod from which the snapshot was
// made.
var ErrMismatch = errors.New("the pool's images are not those that the snapshot was made with")

// Restorer restores one snapshot into the pod of one new sandbox. Close it. It is not
// safe for concurrent use.
type Restorer struct {
	x  *Snapshots
	cp *v1alpha1.Checkpoint

	begun    time.Time // the first try; zero before
	last     error     // of the last try
	pod      types.UID // of the pod into which the last try restored
	restored bool
	archive  io.ReadCloser
	parts    *sandboxdclient.Restoring
}

// Restorer returns a Restorer for a namespace's snapshot; restapi.ErrNoSnapshot if there is no
// such snapshot.
func (x *Snapshots) Restorer(ctx context.Context, namespace, id string) (*Restorer, error) {
	cp, err := x.get(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	return &Restorer{x: x, cp: cp}, nil
}

// Close closes the archive and counts the restore. Call it once, after the last Ready.
func (r *Restorer) Close() {
	r.closeArchive()
	if !r.begun.IsZero() {
		r.x.o.Metrics.observe(opRestore, r.begun, r.last)
	}
}

func (r *Restorer) closeArchive() {
	if r.archive != nil {
		_ = r.archive.Close() // it was only read
		r.archive = nil
	}
}

// Ready restores the snapshot's files into the sandbox's pod, in as many calls as it
// takes. It is a part of an activation.Ready, and comes before /init.
func (r *Restorer) Ready(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	r.last = r.restore(ctx, s, pod)
	return r.last
}

// Restored returns the archive whose files the last Ready restored. The caller passes it to
// sandboxdclient.Agent.InitRestored.
func (r *Restorer) Restored() *sandboxdclient.Restoring { return r.parts }

func (r *Restorer) restore(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	if r.pod != pod.UID {
		r.closeArchive()
		r.pod, r.restored, r.parts = pod.UID, false, nil
	}
	if r.restored {
		return nil
	}
	if !runsImagesOf(pod, r.cp) {
		return activation.EndSandbox.With(ErrMismatch)
	}
	if r.parts == nil {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	before := r.parts.Sent()
	err := r.x.o.Agent.Restore(ctx, s.Name, pod, r.parts)
	switch {
	case err == nil:
		r.restored = true
		r.closeArchive()
		return nil
	case activation.VerdictOf(err) != activation.EndSandbox && (errors.Is(err, sandboxdclient.ErrMore) || r.parts.Sent() > before):
		return activation.TryNow.With(err)
	}
	return err
}

// open opens the archive. If the store has lost or damaged it, the verdict is EndSandbox,
// since another try cannot help.
func (r *Restorer) open(ctx context.Context) error {
	archive, info, err := r.x.o.Store.Get(ctx, string(r.cp.UID))
	if errors.Is(err, checkpoint.ErrStuck) {
		return err
	}
	if err != nil {
		return activation.EndSandbox.With(err)
	}
	r.archive = archive
	if info.Digest != r.cp.Status.Digest {
		r.closeArchive()
		return activation.EndSandbox.With(fmt.Errorf("the store returns another archive for checkpoint %s than was put", r.cp.Name))
	}
	r.parts = &sandboxdclient.Restoring{ID: rand.Text(), Archive: archive}
	return nil
}
