package sandboxpool

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// The states of a pod:
//
//	warming  → idle      Ready, and its address free (package address); one that
//	                     has waited for it for 10 s is no stock meanwhile, and
//	                     keeps the address from the pod made in its place
//	starting → running   every container runs its image, Ready, hooks done
//	any      → failed    crash, restart, eviction, other address, not Ready in time
//	stopping, failed     deleted once recorded; then the finalizer goes
//	stopping → warming   recycled: see decideRecycle
//
// A claim (idle → starting or running) is the gateways' write, an end
// (→ stopping) that of reconcilers/sandbox. Every write here is a JSON Patch
// that tests UID, phase and claim as they were seen; one that is refused means
// that the pod has moved on, and its event brings it back. Deletes carry UID and
// resourceVersion.
//
// Recorded means: the pod was never claimed; or its Sandbox names it, has ended
// and has the pod's address in its status; or its claim was fenced without a
// Sandbox (see the sweep in reconcilers/sandbox). Only then FinalizerPod is
// removed. So a pod that is deleted from outside, also with grace period 0,
// stays in the API until the address it had is written down.

// addressPatience is how long a Ready pod may wait for its address before another
// is made in its place.
const addressPatience = 10 * time.Second

// waitingPoll is how soon to ask again for the address of a pod that has waited
// for longer.
const waitingPoll = time.Second

// fencePoll is how soon to ask again whether the claim of a pod that no sandbox names is
// fenced.
const fencePoll = time.Second

// unreadyPatience is how long an idle pod may be unready before it is replaced.
const unreadyPatience = 30 * time.Second

// view is all that a pod's next step is decided from.
type view struct {
	pod *corev1.Pod
	// sandbox is the one the pod's label names; nil if there is none.
	sandbox *v1alpha1.Sandbox
	// fenced: the pod's claim was fenced long enough ago, by any process.
	fenced bool
	// cooldown is how long an address stays unused after its fence.
	cooldown time.Duration
	// startup bounds the time to Ready; waited is how long this process has seen
	// the pod warm, or start for its claim.
	startup, waited time.Duration
	// drain: the pod's pool is gone or going.
	drain bool
	// outdated: the pod was made from another template than the pool's now.
	outdated bool
	// recycle: the pool lacks stock, and the pod may be used again once its claim
	// is over.
	recycle bool
}

type step int

const (
	stepNone step = iota
	// stepIdle: warming → idle, if the address is free.
	stepIdle
	// stepRunning: starting → running.
	stepRunning
	// stepResolve: ask for an image's digest, then perhaps → running.
	stepResolve
	// stepHooks: run the post-start hooks, then → running.
	stepHooks
	// stepRecycle: give a stopped pod its own images back.
	stepRecycle
	// stepRewarm: stopping → warming.
	stepRewarm
	// stepFail: → failed, with reason and message.
	stepFail
	// stepDelete: delete the pod.
	stepDelete
	// stepForget: remove the finalizer of a pod that is being deleted.
	stepForget
	// stepRecord: note what runs in the pod.
	stepRecord
	// stepEnd: end the pod's sandbox, since the pool goes.
	stepEnd
	// stepRehibernate: take back the resume of the pod's sandbox, since the pool goes: its
	// files are not restored yet, and stay.
	stepRehibernate
)

// decision is a pod's next step. recheck, if not 0, is when time alone may
// change it.
type decision struct {
	step            step
	reason, message string
	recheck         time.Duration
}

// decide is the state machine of a pod; it is pure.
func decide(v view, now time.Time) decision {
	pod, phase := v.pod, v1alpha1.PhaseOf(v.pod)
	switch {
	case pod.DeletionTimestamp != nil:
		switch {
		case hasFinalizer(pod) && recorded(v):
			return decision{step: stepForget}
		case hasFinalizer(pod) && orphan(v): // the fence of its claim is no event of the pool
			return decision{recheck: fencePoll}
		}
		return decision{}
	case phase == v1alpha1.PodStopping, phase == v1alpha1.PodFailed:
		if phase == v1alpha1.PodStopping && v.recycle && recorded(v) && !orphan(v) {
			return decideRecycle(v, now)
		}
		if recorded(v) || orphan(v) {
			return decision{step: stepDelete, reason: "Ended"}
		}
		return decision{}
	case v.drain && !claimed(pod):
		return decision{step: stepDelete, reason: "PoolDeleted"}
	case v.drain && !orphan(v) && v.sandbox.Spec.End == nil && v1alpha1.Restoring(v.sandbox):
		return decision{step: stepRehibernate}
	case v.drain && !orphan(v) && v.sandbox.Spec.End == nil:
		return decision{step: stepEnd, message: "its pool was deleted"}
	}
	if f := podstate.Failure(pod); f != nil {
		return decision{step: stepFail, reason: f.Reason, message: f.Message}
	}
	switch phase {
	case v1alpha1.PodWarming:
		return decideWarming(v)
	case v1alpha1.PodStarting:
		return decideStarting(v)
	case v1alpha1.PodIdle:
		return decideIdle(pod, now)
	case v1alpha1.PodRunning:
		if _, before := podstate.Restarted(pod); before {
			return decision{step: stepRecord}
		}
		return decision{}
	default:
		return decision{}
	}
}

func decideWarming(v view) decision {
	if v.outdated {
		return decision{step: stepDelete, reason: "Outdated"}
	}
	if ready(v.pod) && v.pod.Status.PodIP != "" {
		return decision{step: stepIdle}
	}
	left := v.startup - v.waited
	if left <= 0 {
		return decision{step: stepFail, reason: podstate.ReasonStartupTimeout, message: podstate.NotReady(v.pod, v.startup)}
	}
	return decision{recheck: left}
}

func decideStarting(v view) decision {
	all, unclear := podstate.RunsItsImages(v.pod)
	all = all && ready(v.pod)
	hooks := v1alpha1.HasPostStartHooks(v.pod)
	if all && !hooks {
		return decision{step: stepRunning}
	}
	left := v.startup - v.waited
	switch {
	case left <= 0:
		return decision{step: stepFail, reason: podstate.ReasonStartupTimeout, message: podstate.NotReady(v.pod, v.startup)}
	case all:
		return decision{step: stepHooks, recheck: left}
	case len(unclear) > 0 && ready(v.pod):
		return decision{step: stepResolve, recheck: left}
	default:
		return decision{recheck: left}
	}
}

// decideIdle replaces an idle pod that stays unready. Gateways do not offer it
// meanwhile.
func decideIdle(pod *corev1.Pod, now time.Time) decision {
	c := readyCondition(pod)
	if c == nil || c.Status == corev1.ConditionTrue {
		if !maps.Equal(podstate.OnRecord(pod), podstate.ContainersOf(pod)) {
			return decision{step: stepRecord}
		}
		return decision{}
	}
	left := unreadyPatience - now.Sub(c.LastTransitionTime.Time)
	if left <= 0 {
		return decision{step: stepFail, reason: podstate.ReasonUnready, message: fmt.Sprintf("not Ready for %s while idle", unreadyPatience)}
	}
	return decision{recheck: left}
}

// recorded: nothing that must be known about the pod is lost when it goes.
func recorded(v view) bool {
	if !claimed(v.pod) || v.fenced {
		return true
	}
	had := v.pod.Annotations[v1alpha1.AnnotationAddress]
	if orphan(v) {
		return had == "" // it was never reachable
	}
	s := v.sandbox
	return s.Spec.End != nil && s.Status.Address == had &&
		(s.Status.Phase == v1alpha1.SandboxEnding || s.Status.Phase == v1alpha1.SandboxEnded)
}

// orphan: a claimed pod that no Sandbox names. The sweep of reconcilers/sandbox
// sees to its fence.
func orphan(v view) bool {
	return claimed(v.pod) && (v.sandbox == nil || !v1alpha1.Backs(v.pod, v.sandbox))
}

func claimed(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationClaim] != "" }

func hasFinalizer(pod *corev1.Pod) bool {
	for _, f := range pod.Finalizers {
		if f == FinalizerName {
			return true
		}
	}
	return false
}
