package sandbox

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
)

// phaseOfStep is the phase of a sandbox whose pod runs, by the next step of its pause or resume.
func phaseOfStep(s *v1alpha1.Sandbox) v1alpha1.SandboxPhase {
	switch v1alpha1.NextPauseStep(s) {
	case v1alpha1.PauseStepFreeze, v1alpha1.PauseStepSave:
		return v1alpha1.SandboxPausing
	case v1alpha1.PauseStepBind, v1alpha1.PauseStepRestore, v1alpha1.PauseStepThaw:
		return v1alpha1.SandboxResuming
	}
	if s.Spec.Paused {
		return v1alpha1.SandboxPaused
	}
	return v1alpha1.SandboxRunning
}

// enforcePause has a gateway take the next step of a sandbox whose pod runs, if it is an order to
// the freezer, and notes in next, the object to be written, how far that has come. It returns
// how long until it is to be called again.
func (r *Reconciler) enforcePause(s, next *v1alpha1.Sandbox) (recheck time.Duration) {
	step := v1alpha1.NextPauseStep(s)
	switch step {
	case v1alpha1.PauseStepFreeze, v1alpha1.PauseStepSave, v1alpha1.PauseStepThaw:
	default:
		return 0
	}
	o := r.orders.ensure(freezerOrderOf(s))
	stopped := o.frozen || v1alpha1.Stopped(s)
	state, again := stateOfStep(step, o, v1alpha1.StateOfPause(s), stopped, s.Spec.Timeouts.OnTimeout == v1alpha1.TimeoutPause)
	if again {
		r.orders.again(s.Name)
		o.wait = enforcePauseWait
	}
	if state == v1alpha1.ReasonNoFreezer || state == v1alpha1.ReasonFreezeFailed {
		o.wait = retrySoon // notFreezing decides what follows
	}
	r.setPause(s, next, state, state == v1alpha1.ReasonFrozen || state != v1alpha1.ReasonResumed && stopped)
	next.Status.Phase = phaseOfStep(next)
	return o.wait
}

// stateOfStep returns how far a step has come whose order has this outcome, and whether the order
// has to begin again although it is settled. was: how far the status says that the step has come.
// stopped: a freezer has stopped the sandbox, and none has said since that it runs. byTimeout: the
// sandbox is one that its timeouts pause.
//
// A sandbox that is stopped does not end for want of a freezer: if it takes no order of ours
// any more, or its files cannot be kept, it stays stopped and is asked again.
func stateOfStep(step v1alpha1.PauseStep, o outcome, was v1alpha1.PauseState, stopped, byTimeout bool) (state v1alpha1.PauseState, again bool) {
	if step == v1alpha1.PauseStepThaw {
		switch {
		case o.done, o.noFreezer && !stopped: // without a freezer it was never stopped
			return v1alpha1.ReasonResumed, false
		}
		return v1alpha1.ReasonResuming, o.noFreezer
	}
	going := v1alpha1.PauseState(v1alpha1.ReasonFreezing)
	if step == v1alpha1.PauseStepSave {
		going = v1alpha1.ReasonSaving
		switch {
		case o.done: // a gateway has written that the pod is given up, and the cache does not show that yet
			return going, true
		case was == v1alpha1.ReasonSaveFailed && (stopped || !o.noFreezer): // also in a new process, which knows of no try yet
			return was, o.noFreezer
		case o.unanswered && stopped, o.late && (stopped || !byTimeout):
			return v1alpha1.ReasonSaveFailed, false
		}
	}
	switch {
	case o.done:
		return v1alpha1.ReasonFrozen, false
	case stopped:
		return going, o.noFreezer
	case o.noFreezer:
		return v1alpha1.ReasonNoFreezer, false
	case o.late && byTimeout:
		return v1alpha1.ReasonFreezeFailed, false
	case o.unanswered:
		return v1alpha1.ReasonUnanswered, false
	}
	return going, false
}

// setPause notes in next, the object to be written, how far the pause or resume that the spec
// of s asks for has come.
func (r *Reconciler) setPause(s, next *v1alpha1.Sandbox, state v1alpha1.PauseState, stopped bool) {
	was, since := s.Status.Pause, metav1.NewTime(r.now())
	if was != nil && state != v1alpha1.ReasonResumed && (was.Order == s.Spec.PauseOrder || !s.Spec.Paused) {
		since = was.Since // of the pause that goes on, or that is being ended
	}
	next.Status.Pause = &v1alpha1.PauseStatus{Order: s.Spec.PauseOrder, State: state, Since: since, Stopped: stopped}
	r.pauseChanged(s, state)
}

// setPaused sets the condition Paused, which is for people, by status.pause.
func setPaused(s *v1alpha1.Sandbox) {
	state := v1alpha1.StateOfPause(s)
	if state == "" {
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.SandboxConditionPaused, ObservedGeneration: s.Generation,
		Status: metav1.ConditionFalse, Reason: string(state),
	}
	switch state {
	case v1alpha1.ReasonFrozen, v1alpha1.ReasonHibernated:
		c.Status = metav1.ConditionTrue
	case v1alpha1.ReasonResuming:
		c.Status = metav1.ConditionUnknown
	}
	if v1alpha1.Stopped(s) {
		c.Message = "its freezer has stopped it"
	}
	meta.SetStatusCondition(&s.Status.Conditions, c)
}

// freezerOrderOf returns the order to do what the spec of a bound sandbox asks for.
func freezerOrderOf(s *v1alpha1.Sandbox) controlplane.EnforcePause {
	return controlplane.EnforcePause{
		SandboxID: s.Name, ClaimID: s.Spec.Binding.ClaimID, Order: s.Spec.PauseOrder,
		Freeze: s.Spec.Paused, Saves: v1alpha1.NextPauseStep(s) == v1alpha1.PauseStepSave,
	}
}

// notFreezing decides about a paused sandbox that cannot be frozen. If its timeouts pause it
// (onTimeout), it ends as it would at that timeout, since nothing else would ever end it;
// otherwise it is resumed.
func notFreezing(s *v1alpha1.Sandbox, d decision) decision {
	reason := v1alpha1.NotFreezing(s)
	switch {
	case reason == "" || d.step != stepNone:
		return d
	case s.Spec.Timeouts.OnTimeout != v1alpha1.TimeoutPause:
		d.step = stepResume
		return d
	}
	return timeoutEnd(s, d, "its time is up, and it could not be paused: "+string(reason))
}

// DefaultUnknownFor is how long the pod of a sandbox that a timeout has paused may be silent.
const DefaultUnknownFor = 24 * time.Hour

// unknownTooLong ends a sandbox whose pause by its timeouts is neither carried out nor refused
// for Reconciler.UnknownFor: its pod may be stopped or may run, on a node that is silent. Only
// the tries of this process count, since status.pause says nothing about when the pod was asked. A
// sandbox that its freezer has stopped stays.
func unknownTooLong(v view, d decision) decision {
	s := v.sandbox
	if d.step != stepNone || !s.Spec.Paused || s.Spec.Timeouts.OnTimeout != v1alpha1.TimeoutPause ||
		v1alpha1.Stopped(s) || v1alpha1.StateOfPause(s) == "" {
		return d
	}
	if v.silentFor > 0 && v.silentFor >= v.unknownFor {
		return timeoutEnd(s, d, "its time is up, and its pod was silent for "+v.unknownFor.String())
	}
	return d // each try queues the sandbox
}

// timeoutEnd ends a sandbox as its timeout would have ended it.
func timeoutEnd(s *v1alpha1.Sandbox, d decision, message string) decision {
	end := decision{phase: d.phase, step: stepEnd, reason: v1alpha1.EndEndAt, message: message}
	if s.Spec.Team == "" && s.Spec.Timeouts.Idle != nil { // a sandbox of the REST API has an end time
		end.reason = v1alpha1.EndIdleTimeout
	}
	return end
}

// maxPausedRecheck bounds the time between two reconciles of a paused sandbox, since its
// pool's pausedFor may change.
const maxPausedRecheck = 10 * time.Minute

// pausedTooLong ends a sandbox that was paused for as long as it may be.
func pausedTooLong(v view, d decision, now time.Time) decision {
	s := v.sandbox
	if d.step != stepNone || !s.Spec.Paused || v1alpha1.StateOfPause(s) == "" {
		return d
	}
	left := maxPausedRecheck // with 0 it may be paused for ever, until the pool changes
	if v.pausedFor != 0 {
		left = s.Status.Pause.Since.Add(v.pausedFor).Sub(now)
	}
	if left <= 0 {
		return decision{phase: d.phase, step: stepEnd, reason: v1alpha1.EndPauseTimeout, message: "it was paused for " + v.pausedFor.String()}
	}
	d.recheck = resync.Sooner(d.recheck, min(left, maxPausedRecheck))
	return d
}

// frozenTooLong makes a sandbox hibernate once it was frozen for its pool's hibernateAfter.
func frozenTooLong(v view, d decision, now time.Time) decision {
	s := v.sandbox
	if d.step != stepNone || v.hibernateAfter == 0 || v1alpha1.StateOfPause(s) != v1alpha1.ReasonFrozen {
		return d
	}
	left := s.Status.Pause.Since.Add(v.hibernateAfter).Sub(now)
	if left <= 0 {
		return decision{phase: d.phase, step: stepHibernate}
	}
	d.recheck = resync.Sooner(d.recheck, min(left, maxPausedRecheck))
	return d
}

// endAfterPause returns the end time of a sandbox that is resumed because it cannot be
// frozen. The pause has removed the end time of a sandbox of the REST API; that one gets the
// end time that a resume by a request would set.
func (r *Reconciler) endAfterPause(s *v1alpha1.Sandbox) *metav1.Time {
	if s.Spec.Team == "" || s.Spec.FirstRequest || s.Spec.Timeouts.EndAt != nil {
		return nil
	}
	return v1alpha1.EndAfter(r.now(), v1alpha1.AutoLifetime(s))
}

// pauseChanged counts a new state of a pause or resume, and writes an Event for it.
func (r *Reconciler) pauseChanged(s *v1alpha1.Sandbox, state v1alpha1.PauseState) {
	if was := s.Status.Pause; was != nil && was.State == state {
		return
	}
	r.Metrics.pauseChanged(string(state))
	switch state {
	case v1alpha1.ReasonFrozen:
		r.event(s, "Normal", "Paused", "Pausing", "everything in the sandbox is stopped")
	case v1alpha1.ReasonResumed:
		if s.Status.Phase != v1alpha1.SandboxRunning {
			r.event(s, "Normal", "Resumed", "Resuming", "the sandbox runs again")
		}
	case v1alpha1.ReasonHibernated:
		r.event(s, "Normal", "Paused", "Pausing", "the sandbox's files are kept, and its pod is given up")
	case v1alpha1.ReasonSaveFailed:
		r.event(s, "Warning", "PauseFailed", "Pausing", "the sandbox's files were not kept for a minute: it stays frozen, and it is tried again")
	case v1alpha1.ReasonNoFreezer:
		r.event(s, "Warning", "PauseFailed", "Pausing", "the sandbox's pod cannot be frozen: it runs on, or ends if its timeout paused it")
	case v1alpha1.ReasonFreezeFailed:
		r.event(s, "Warning", "PauseFailed", "Pausing", "the sandbox's freezer has refused for a minute after its timeout: it ends")
	case v1alpha1.ReasonUnanswered:
		r.event(s, "Warning", "PauseFailed", "Pausing", "for a minute it is not known whether the sandbox is stopped: its pod does not answer, or no gateway can ask it; it is tried again")
	}
}
