package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routecache"
)

// followAfter is how long the owner of a binding has to claim its pod before a
// follower does it in the owner's place, and how often a follower reads the pod while
// the index sees no change.
const followAfter = time.Second

// followMax is the longest time between two reads of a follower whose pod is starting. A
// start takes seconds to minutes, and the index tells the follower when it is over; the
// reads, two requests to the API server each time, are for a watch that is late.
const followMax = 8 * time.Second

// following is the state following of an activation: its view of a binding that it did not
// write, or whose pod is starting.
type following struct {
	*activation
	claimID string
	since   time.Time // when this activation first read a binding with that claim
	// lastWait is how long the last wait for the claim's pod to start was; zero if there was
	// no wait, or a change in the index ended it.
	lastWait time.Duration
	refused  string // the claim whose PATCH failed because the pod was taken or gone
}

// claimState is how far the claim of a binding has come.
type claimState int

const (
	claimPending claimState = iota // the pod is idle: the claim PATCH has not been applied
	claimRuns                      // the pod carries the claim and runs
	claimStarts                    // the pod carries the claim and does not run yet
	claimOver                      // the pod carries the claim and is ending: the sandbox will end
	claimLost                      // the pod is gone or belongs to another sandbox: it can never carry the claim
)

// claimStateOf returns how far the sandbox's claim has come; pod is nil if there is no pod
// of that name. A pod that carries the claim stays, by its finalizer, until the sandbox has
// ended, so a pod that is gone never carried it.
func claimStateOf(s *v1alpha1.Sandbox, pod *corev1.Pod) claimState {
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
	case phase == v1alpha1.PodRunning && v1alpha1.RoutableAddress(pod) != "":
		return claimRuns
	}
	return claimStarts
}

// step reads the bound pod once and does what a follower may do at this point. It returns
// errReadAgain if the sandbox is to be read again.
func (w *following) step(token routecache.Token, s *v1alpha1.Sandbox) error {
	b := s.Spec.Binding
	if b.ClaimID != w.claimID {
		w.claimID, w.since, w.lastWait = b.ClaimID, time.Now(), 0
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
	switch claimStateOf(s, pod) {
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
		w.lastWait = backoff.Next(w.lastWait, followAfter, followMax)
		return w.waitAtMost(w.lastWait)
	}
	return w.waitForChange()
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
			return w.waitForChange()
		}
		w.refused = claim.ClaimID
		return errReadAgain
	case errors.Is(err, schedule.ErrUnroutable):
		return w.claimWith(&binder{activation: w.activation, sandbox: s, unroutable: &claim})
	case errors.Is(err, schedule.ErrInvalid), errors.Is(err, schedule.ErrForbidden):
		return fmt.Errorf("claim for the owner: %w", fromSchedule(err))
	}
	return w.waitForChange() // the pod is starting, or the PATCH is to be tried again
}

// waitForChange waits until the index has seen a change, a second at most. Like waitAtMost
// it returns errReadAgain, or ErrNotReady at the activation's deadline.
func (w *following) waitForChange() error {
	if left := time.Until(w.since.Add(followAfter)); left > 0 {
		return w.waitAtMost(left)
	}
	return w.waitAtMost(followAfter)
}

// waitAtMost waits until the index has seen a change, d at most.
func (w *following) waitAtMost(d time.Duration) error {
	if backoff.SleepOrWake(w.ctx, d, w.changed) {
		w.lastWait = 0
	}
	if w.ctx.Err() != nil {
		return ErrNotReady
	}
	return errReadAgain
}
