package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routecache"
)

// followAfter is how long the owner of a binding has to claim its pod before a
// follower does it in the owner's place, and how often a follower reads the pod while
// the index sees no change.
const followAfter = time.Second

// followMost is how long a follower of a pod that starts waits at most between two
// looks. A start takes seconds to minutes, the index tells the follower of its end,
// and each look is two reads of the API server: these are for a watch that is late.
const followMost = 8 * time.Second

// following is a activation's view of a binding that it did not write, or whose pod
// is starting.
type following struct {
	*activation
	claimID string
	since   time.Time // when that claim was first seen
	// rest is how long the last wait for the claim's pod to start was; zero if there was
	// no wait, or a change in the index ended it.
	rest    time.Duration
	refused string // the claim whose PATCH was answered that the pod is taken or gone
}

// standing is how far a binding's claim has come.
type standing int

const (
	claimPending standing = iota // the pod is idle: the claim PATCH has not been applied
	claimRuns                    // done
	claimStarts                  // on the pod, which is not running yet
	claimOver                    // was on the pod, which is ending: the sandbox will end
	claimLost                    // the pod is gone or another's: it can never land
)

// standingOf says how far the sandbox's claim has come; pod is nil if there is
// none of that name. A pod that had the claim stays, by its finalizer, until
// the sandbox has ended, so one that is gone never had it.
func standingOf(s *v1alpha1.Sandbox, pod *corev1.Pod) standing {
	if pod == nil || string(pod.UID) != s.Spec.Binding.PodUID {
		return claimLost
	}
	phase, going := v1alpha1.PhaseOf(pod), pod.DeletionTimestamp != nil || v1alpha1.Finished(pod)
	switch backs := v1alpha1.Backs(pod, s); {
	case !backs && phase == v1alpha1.PodIdle && !going:
		return claimPending
	case !backs:
		return claimLost
	case going, phase == v1alpha1.PodStopping, phase == v1alpha1.PodFailed:
		return claimOver
	case phase == v1alpha1.PodRunning && v1alpha1.FencedAddress(pod) != "":
		return claimRuns
	}
	return claimStarts
}

// step reads the bound pod once, does what a follower may do, and returns
// errReadAgain when the sandbox is to be looked at again.
func (w *following) step(token routecache.Token, s *v1alpha1.Sandbox) error {
	b := s.Spec.Binding
	if b.ClaimID != w.claimID {
		w.claimID, w.since, w.rest = b.ClaimID, time.Now(), 0
	}
	pod := &corev1.Pod{}
	err := w.read(w.ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: b.PodName}, pod)
	if errors.Is(err, errGone) {
		pod, err = nil, nil
	}
	if err != nil {
		return err
	}
	ownersTurn := time.Since(w.since) < followAfter
	switch standingOf(s, pod) {
	case claimRuns:
		return w.finish(token, s, pod)
	case claimPending:
		if !ownersTurn {
			return w.complete(token, s, pod)
		}
	case claimLost:
		if !ownersTurn {
			return w.activation.claim(s)
		}
	case claimStarts:
		w.rest = backoff.Next(w.rest, followAfter, followMost)
		return w.pauseFor(w.rest)
	}
	return w.pause()
}

// complete sends the claim PATCH that the binding's owner has not sent.
func (w *following) complete(token routecache.Token, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	defer cancel()
	claim, err := schedule.ClaimOf(s, pod)
	if err == nil {
		pod, err = schedule.ApplyClaim(ctx, w.a.o.Client, claim)
	}
	switch {
	case err == nil && v1alpha1.PhaseOf(pod) == v1alpha1.PodRunning:
		return w.finish(token, s, pod)
	case errors.Is(err, schedule.ErrPodTaken), errors.Is(err, schedule.ErrPodGone), errors.Is(err, schedule.ErrClaimOver):
		if w.refused == claim.ClaimID { // the PATCH was refused before, but the pod was read idle again
			return w.pause()
		}
		w.refused = claim.ClaimID
		return errReadAgain
	case errors.Is(err, schedule.ErrUnfenced):
		return w.claimWith(&binder{activation: w.activation, sandbox: s, unfenced: &claim})
	case errors.Is(err, schedule.ErrInvalid), errors.Is(err, schedule.ErrForbidden):
		return fmt.Errorf("claim for the owner: %w", fromSchedule(err))
	}
	return w.pause() // starting, or to be tried again
}

// pause waits until the index has seen a change, a second at most.
func (w *following) pause() error {
	if left := time.Until(w.since.Add(followAfter)); left > 0 {
		return w.pauseFor(left)
	}
	return w.pauseFor(followAfter)
}

// pauseFor waits until the index has seen a change, d at most.
func (w *following) pauseFor(d time.Duration) error {
	if backoff.SleepUntil(w.ctx, d, w.changed) {
		w.rest = 0
	}
	if w.ctx.Err() != nil {
		return ErrNotReady
	}
	return errReadAgain
}
