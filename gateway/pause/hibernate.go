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
	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/agent"
	"github.com/sandlane/sandlane/kubeclient/pausing"
)

// saveTimeout bounds the keeping of one sandbox's files, however many wait for it.
const saveTimeout = 45 * time.Second

// Keeper keeps the files of a frozen sandbox as a Checkpoint. *snapshots.Paused is one.
type Keeper interface {
	// Keepable returns nil if the files of a pod can be kept, as far as its object shows.
	Keepable(pod *corev1.Pod) error
	// Keep returns the Checkpoint's name once all is kept and was read back. After an error
	// nothing is.
	Keep(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) (checkpoint string, err error)
}

// HibernatedError says that the sandbox has no pod, and may be resumed, to run for Lifetime; 0 is
// no end.
type HibernatedError struct{ Lifetime time.Duration }

// Error implements error.
func (e *HibernatedError) Error() string { return "the sandbox hibernates" }

// SetKeeper lets sandboxes hibernate. Call it before the Pauser is used.
func (p *Pauser) SetKeeper(k Keeper) { p.keeper = k }

// hibernate keeps the files of a frozen sandbox, which was read or written just now, and
// gives its pod up. Calls for the same claim and generation share one attempt. It returns
// nil also if another gateway has done it, and ErrChanged if the sandbox's spec asks for
// something else by now.
func (p *Pauser) hibernate(ctx context.Context, s *v1alpha1.Sandbox) error {
	if p.keeper == nil {
		return ErrNoStore
	}
	for pauses := backoff.Doubling(50*time.Millisecond, time.Second); ; {
		done := p.saves.DoChan(fmt.Sprintf("%s/%d", s.Spec.Binding.ClaimID, s.Generation), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			return nil, p.save(ctx, s.DeepCopy())
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
		case !errors.Is(err, ErrChanged) && !errors.Is(err, agent.ErrBusy) && !errors.Is(err, agent.ErrRouteMoved):
			return err
		}
		// Another gateway reads the files, or has written something.
		live, readErr := p.live(ctx, s)
		switch {
		case readErr != nil:
			return readErr
		case v1alpha1.Hibernated(live):
			return nil
		case live.Generation != s.Generation:
			return ErrChanged
		case !backoff.Sleep(ctx, pauses.Step()):
			return err
		}
	}
}

// save keeps the files once, and writes that the pod is given up.
func (p *Pauser) save(ctx context.Context, s *v1alpha1.Sandbox) error {
	pod, err := p.pods.Callable(ctx, p.pods.Begin(s.Name), s)
	if err != nil {
		return err
	}
	checkpoint, err := p.keeper.Keep(ctx, s, pod)
	if err != nil {
		return err
	}
	failpoint.Hit("pause/kept") // the files are kept, and the sandbox has its pod
	// If this write is refused, or its answer is lost and it was not applied, no sandbox
	// names the checkpoint, and the controller deletes it.
	err = p.write(ctx, s, true, pausing.GiveUpPod(s, checkpoint))
	failpoint.Hit("pause/given-up") // the pod is given up, and runs frozen
	return err
}

// errEnded is the ErrChanged of a sandbox that has ended since it was read.
var errEnded = fmt.Errorf("%w: it has ended", ErrChanged)

// live reads a sandbox again; errEnded if it has ended.
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

// Restored notes that this gateway has initialised the sandbox's new pod, whose processes
// were never frozen.
func (p *Pauser) Restored(s *v1alpha1.Sandbox) {
	p.remember(s.Spec.Binding.ClaimID, write{generation: s.Generation, awake: true})
}
