package sandbox

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// step is what the controller does next with a sandbox.
type step int

const (
	stepNone step = iota
	// stepEnd: write spec.end with reason and message.
	stepEnd
	// stepUnbind: remove a binding whose claim can no longer get onto its pod.
	stepUnbind
	// stepApply: send the claim PATCH that the binding's owner has not sent.
	stepApply
	// stepDelete: delete the Sandbox of a first request that never had a pod.
	stepDelete
	// stepPause: pause the sandbox, since its end time has come and its onTimeout says so.
	stepPause
	// stepResume: resume the sandbox, since it cannot be frozen.
	stepResume
	// stepRehibernate: take back a resume that has not restored the sandbox's files.
	stepRehibernate
	// stepHibernate: make the sandbox hibernate, since it was frozen for hibernateAfter.
	stepHibernate
	// stepConfirm: the pod seems to be gone by the cache; read it from the API server first.
	stepConfirm
)

// view has all facts by which the next step of a sandbox that has not ended is decided.
type view struct {
	sandbox *v1alpha1.Sandbox
	// pod is the bound pod; nil if there is no pod of that name and UID.
	pod *corev1.Pod
	// confirmed: pod comes from a live read.
	confirmed bool
	// unclaimedFor is how long this process has seen the binding without its claim on the
	// pod.
	unclaimedFor time.Duration
	// podlessFor is how long this process has seen the sandbox before it ever had a pod.
	// The sandbox's creationTimestamp is not used, since the API server's clock may be
	// behind this process's by more than any timeout.
	podlessFor time.Duration
	// startup is the sandbox's startup timeout; grace is Reconciler.BindGrace.
	startup, grace time.Duration
	// pausedFor is how long the sandbox may be paused; 0 is for ever.
	pausedFor time.Duration
	// hibernateAfter is how long it may be frozen before it hibernates; 0 is for ever.
	hibernateAfter time.Duration
	// unknownFor is Reconciler.UnknownFor.
	unknownFor time.Duration
	// silentFor is how long this process's tries to freeze it have failed, the last one
	// without an answer; 0 if that is not so.
	silentFor time.Duration
	// restoringFor is how long this process has seen that its files are to be restored.
	restoringFor time.Duration
}

// decision is the phase of a sandbox that has not ended, and the next step.
type decision struct {
	phase   v1alpha1.SandboxPhase
	step    step
	reason  v1alpha1.EndReason
	message string
	// recheck, if not 0, is how long until the decision may change without an event.
	recheck time.Duration
}

// decide is the state machine of a sandbox that has not ended. It is pure.
func decide(v view, now time.Time) decision {
	s := v.sandbox
	switch {
	case v1alpha1.Hibernated(s):
		return pausedTooLong(v, decision{phase: v1alpha1.SandboxPaused}, now)
	case v1alpha1.Restoring(s):
		return decideRestoring(v)
	}
	d := podlessTooLong(v, decidePod(v))
	if s.Spec.Paused {
		d = pausedPodLost(s, d)
	}
	d = frozenTooLong(v, pausedTooLong(v, unknownTooLong(v, notFreezing(s, d)), now), now)
	if at := s.Spec.Timeouts.EndAt; at != nil && !s.Spec.Paused { // paused time uses no timeout
		left := at.Sub(now)
		if left <= 0 && pausesInstead(v, d) {
			return decision{phase: d.phase, step: stepPause}
		}
		if left <= 0 && s.Spec.Timeouts.OnTimeout == v1alpha1.TimeoutPause && s.Spec.Binding != nil && !v.confirmed {
			return decision{phase: d.phase, step: stepConfirm} // it may run in a pod that the cache does not show yet
		}
		if left <= 0 {
			return decision{phase: d.phase, step: stepEnd, reason: v1alpha1.EndEndAt, message: "its end time has come"}
		}
		d.recheck = resync.Sooner(d.recheck, left)
	}
	return d
}

// pausesInstead reports whether a sandbox whose end time has come is to be paused and not
// ended: its onTimeout says so, and it runs or is resuming. A sandbox that never ran ends.
func pausesInstead(v view, d decision) bool {
	return v.sandbox.Spec.Timeouts.OnTimeout == v1alpha1.TimeoutPause && d.step == stepNone &&
		(d.phase == v1alpha1.SandboxRunning || d.phase == v1alpha1.SandboxResuming) && v1alpha1.Freezable(&v.pod.Spec)
}

// podlessTooLong turns d into the step for a sandbox that got no pod in time. The Sandbox of
// a first request is deleted. One of the REST API ends: the gateway that made it has given
// up or died, and no client knows its ID. If it has a binding, that is removed first, after a
// read from the API server, since the claim may be on the pod without the cache showing it.
func podlessTooLong(v view, d decision) decision {
	if d.step != stepNone && d.step != stepApply {
		return d
	}
	left, ok := neverHadPod(v)
	switch {
	case !ok:
	case left > 0:
		d.recheck = resync.Sooner(d.recheck, left)
	case v.sandbox.Spec.Binding == nil && v.sandbox.Spec.FirstRequest:
		return decision{phase: d.phase, step: stepDelete}
	case v.sandbox.Spec.Binding == nil:
		return decision{phase: d.phase, step: stepEnd, reason: v1alpha1.EndStartupTimeout, message: "it was given up before it had a pod"}
	case !v.confirmed:
		return decision{phase: d.phase, step: stepConfirm}
	case v.unclaimedFor >= v.grace:
		return decision{phase: d.phase, step: stepUnbind}
	}
	return d
}

// neverHadPod returns how much longer a sandbox for which a client waits may be without a
// pod; ok is false if it has had one, or no client waits for it.
func neverHadPod(v view) (left time.Duration, ok bool) {
	s := v.sandbox
	if !awaited(s) || s.Status.Address != "" || (v.pod != nil && v1alpha1.Backs(v.pod, s)) {
		return 0, false
	}
	patience := v.startup
	if !s.Spec.FirstRequest { // a create of the REST API may wait for an idle pod for most of the default
		patience = max(patience, v1alpha1.DefaultStartupTimeout)
	}
	return patience - v.podlessFor, true
}

// awaited reports whether a client waits for the sandbox: it was made by a first request or
// by the REST API. Any other sandbox was made by hand, and may wait for a request without
// limit.
func awaited(s *v1alpha1.Sandbox) bool {
	return s.Spec.FirstRequest || s.Spec.Team != "" && s.Spec.Timeouts.EndAt != nil
}

// pausedPodLost has the end of a paused sandbox that has lost its pod say so. It cannot get
// another pod: only that one had its memory.
func pausedPodLost(s *v1alpha1.Sandbox, d decision) decision {
	const lost = "PausedPodLost: "
	switch {
	case d.step == stepUnbind:
		return failed(lost + "its pod " + s.Spec.Binding.PodName + " never ran, or is gone, and it is paused")
	case d.step == stepEnd && d.reason == v1alpha1.EndFailed:
		d.message = lost + d.message
	}
	return d
}

// decidePod decides by the sandbox's pod alone.
func decidePod(v view) decision {
	s, pod := v.sandbox, v.pod
	switch {
	case s.Spec.Binding == nil:
		return decision{phase: v1alpha1.SandboxPending}
	case pod != nil && v1alpha1.Backs(pod, s):
		return decideBacked(v)
	case !v.confirmed && (pod == nil || !mayBeClaimed(pod) || served(s)):
		// The cache may be behind the claim; only the API server knows.
		return decision{phase: s.Status.Phase, step: stepConfirm}
	case served(s):
		return failed("its pod " + s.Spec.Binding.PodName + " is gone")
	case v.unclaimedFor < v.grace:
		return decision{phase: v1alpha1.SandboxPending, recheck: v.grace - v.unclaimedFor}
	case pod != nil && mayBeClaimed(pod) && !v1alpha1.Finished(pod): // a pod whose containers have ended is not claimed
		return decision{phase: v1alpha1.SandboxPending, step: stepApply, recheck: v.grace}
	default:
		return decision{phase: v1alpha1.SandboxPending, step: stepUnbind}
	}
}

func decideBacked(v view) decision {
	pod := v.pod
	switch phase := v1alpha1.PhaseOf(pod); {
	case phase == v1alpha1.PodFailed:
		d := failed(pod.Annotations[v1alpha1.AnnotationFailureMessage])
		if pod.Annotations[v1alpha1.AnnotationFailureReason] == string(v1alpha1.EndStartupTimeout) {
			d.reason = v1alpha1.EndStartupTimeout
		}
		return d
	case pod.DeletionTimestamp != nil:
		return failed(podstate.DeletionDetail(pod).Message)
	case stoppedUnserved(v.sandbox, pod) && v.unclaimedFor < v.grace:
		// The gateway that stopped the pod binds the sandbox to another one.
		return decision{phase: v1alpha1.SandboxPending, recheck: v.grace - v.unclaimedFor}
	case stoppedUnserved(v.sandbox, pod):
		return decision{phase: v1alpha1.SandboxPending, step: stepUnbind}
	case phase == v1alpha1.PodStopping:
		return failed(fmt.Sprintf("its pod %s was stopped", pod.Name))
	case phase == v1alpha1.PodRunning:
		return decision{phase: phaseOfStep(v.sandbox)}
	default:
		return decision{phase: v1alpha1.SandboxStarting}
	}
}

func failed(message string) decision {
	return decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndFailed, message: message}
}

// served reports whether the status has the address of the current claim's pod. An address
// that is there from a former claim does not count.
func served(s *v1alpha1.Sandbox) bool {
	b := s.Spec.Binding
	return b != nil && s.Status.Address != "" && s.Status.AddressClaim == b.ClaimID
}

// stoppedUnserved reports whether the pod carries the claim but was stopped because its
// address had changed, so that no gateway could route to it.
func stoppedUnserved(s *v1alpha1.Sandbox, pod *corev1.Pod) bool {
	return v1alpha1.Backs(pod, s) && v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping &&
		!served(s) && v1alpha1.RoutableAddress(pod) == ""
}

// mayBeClaimed reports whether the API server would still apply a claim PATCH to the pod.
func mayBeClaimed(pod *corev1.Pod) bool {
	return v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle && pod.DeletionTimestamp == nil &&
		pod.Annotations[v1alpha1.AnnotationClaim] == ""
}
