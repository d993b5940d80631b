package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// saveTimeout bounds one attempt to keep a sandbox's files, which several calls may share.
const saveTimeout = 45 * time.Second

// Saver keeps the files of a frozen sandbox as a Checkpoint. *files.Hibernator implements it.
type Saver interface {
	// Keepable returns nil if the files of a pod can be kept, as far as its object shows.
	Keepable(pod *corev1.Pod) error
	// Keep returns the name of the Checkpoint once the store holds all files and they were
	// read back from it. After an error no files are kept.
	Keep(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) (checkpoint string, err error)
}

// SetSaver lets sandboxes hibernate. Call it before the Pauser is used.
func (p *Pauser) SetSaver(s Saver) { p.saver = s }

// hibernate keeps the files of a frozen sandbox and then writes that its pod is given up.
// s was read or written just now. Calls for the same claim and pause share one
// attempt. hibernate returns nil also if another gateway has done both, and ErrStale if
// the sandbox was resumed or has ended since s was read.
func (p *Pauser) hibernate(ctx context.Context, s *v1alpha1.Sandbox) error {
	if p.saver == nil {
		return ErrNoStore
	}
	for delays := backoff.Doubling(50*time.Millisecond, time.Second); ; {
		of := s.DeepCopy() // the caller may write to s once it has left
		done := p.saves.DoChan(fmt.Sprintf("%s/%d", s.Spec.Binding.ClaimID, s.Spec.PauseOrder), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			return nil, p.save(ctx, of)
		})
		var err error
		select {
		case r := <-done:
			err = r.Err
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, writes.ErrStale) && !errors.Is(err, sandboxdclient.ErrBusy):
			return err
		}
		// Another gateway is reading the files, or has changed the sandbox.
		live, readErr := p.live(ctx, s)
		switch {
		case readErr != nil:
			return readErr
		case v1alpha1.Hibernated(live):
			return nil
		case live.Spec.PauseOrder != s.Spec.PauseOrder:
			return writes.ErrStale
		case !backoff.Sleep(ctx, delays.Step()):
			return fmt.Errorf("the files are being read, or the route to the sandbox keeps changing: %w", ctx.Err())
		}
	}
}

// awaitSaved does its part that the files of a sandbox are kept for whose resume a caller waits,
// or takes part in another call's attempt. writes.ErrStale means that they are, or that the
// sandbox has changed otherwise; nil, that it keeps its memory: nothing was to be kept, or that
// has failed.
func (p *Pauser) awaitSaved(ctx context.Context, s *v1alpha1.Sandbox) error {
	if !v1alpha1.Saving(s) {
		return nil
	}
	switch err := p.takeStep(ctx, s); {
	case err == nil, errors.Is(err, writes.ErrStale):
		return writes.ErrStale
	case ctx.Err() != nil:
		return err
	}
	return nil
}

// save is one attempt of hibernate.
func (p *Pauser) save(ctx context.Context, s *v1alpha1.Sandbox) error {
	pod, err := p.pods.Callable(ctx, p.pods.Begin(s.Name), s)
	if err != nil {
		return err
	}
	checkpoint, err := p.saver.Keep(ctx, s, pod)
	if err != nil {
		return err
	}
	failpoint.Hit("pause/kept") // the files are kept, and the sandbox still has its pod
	// If this write is refused, or its answer is lost and it was not applied, no sandbox
	// names the checkpoint, and the controller deletes it.
	if err := p.write(ctx, s, true, writes.GiveUpPod(s, checkpoint)); err != nil {
		return err
	}
	failpoint.Hit("pause/given-up") // the pod is given up, and its processes are still frozen
	return nil
}

// errEnded is the ErrStale of a sandbox that has ended since it was read.
var errEnded = fmt.Errorf("%w: it has ended", writes.ErrStale)

// live reads the sandbox from the API server again; errEnded if it has ended.
func (p *Pauser) live(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	live := &v1alpha1.Sandbox{}
	err := p.api.Get(ctx, types.NamespacedName{Name: s.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errEnded
	case err != nil:
		return nil, fmt.Errorf("reading sandbox %s: %w", s.Name, err)
	case live.UID != s.UID || live.Spec.End != nil || live.Spec.Release != nil || live.DeletionTimestamp != nil:
		return nil, errEnded
	}
	return live, nil
}

// NoteRestored notes that this gateway has restored the sandbox in a new pod, whose
// processes were never frozen. s is what that write has returned: a sandbox that was read
// later may have been paused since.
func (p *Pauser) NoteRestored(s *v1alpha1.Sandbox) {
	p.remember(s.Spec.Binding.ClaimID, ownWrite{order: s.Spec.PauseOrder, awake: true})
}
