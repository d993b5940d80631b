package v1alpha1

// PauseStep is what has to be done next so that a sandbox is what its spec asks for. Gateways
// and controller take a sandbox's step from NextPauseStep. docs/design/pause.md has the states
// between steps, and gateway/pause/steps.go which process takes each, and what follows if it
// fails.
type PauseStep string

// The steps of a pause or a resume.
const (
	// PauseStepNone: nothing is left to do. The sandbox runs and was never paused, or it is
	// paused or resumed as its spec asks.
	PauseStepNone PauseStep = ""
	// PauseStepFreeze: its pod's freezer is to stop it.
	PauseStepFreeze PauseStep = "Freeze"
	// PauseStepSave: its freezer is to stop it, its files are to be kept, and then one write
	// gives up its pod.
	PauseStepSave PauseStep = "Save"
	// PauseStepBind: it is resumed without a pod, and is to get one as any sandbox does.
	PauseStepBind PauseStep = "Bind"
	// PauseStepRestore: its files are to be restored in its new pod.
	PauseStepRestore PauseStep = "Restore"
	// PauseStepThaw: its pod's freezer is to let it run.
	PauseStepThaw PauseStep = "Thaw"
)

// NextPauseStep returns the next step of a sandbox's pause or resume. It reads the spec, and of
// the status only how far the pause or resume with the spec's pauseOrder has come.
func NextPauseStep(s *Sandbox) PauseStep {
	switch spec := &s.Spec; {
	case spec.PauseMode == "": // it was never paused
	case spec.Restore != nil && spec.Paused: // it hibernates
	case spec.Restore != nil && spec.Binding == nil:
		return PauseStepBind
	case spec.Restore != nil:
		return PauseStepRestore
	case !spec.Paused && StateOfPause(s) != ReasonResumed:
		return PauseStepThaw
	case !spec.Paused, StateOfPause(s) == ReasonFrozen:
	case spec.PauseMode == PauseHibernate:
		return PauseStepSave
	default:
		return PauseStepFreeze
	}
	return PauseStepNone
}

// EverPaused reports whether the sandbox was paused at least once. Such a sandbox may be
// frozen whatever its spec says now, until Awake or its freezer says otherwise.
func EverPaused(s *Sandbox) bool { return s.Spec.PauseMode != "" }

// Awake reports whether the status shows that the sandbox's processes run: it was never
// paused, or its processes were continued or its files restored after its last resume. An
// older status does not count: it may have been paused and resumed since, and the resume is
// not carried out yet.
func Awake(s *Sandbox) bool { return !s.Spec.Paused && NextPauseStep(s) == PauseStepNone }

// Hibernated reports whether the sandbox is paused without a pod: its files are in the
// checkpoint that it names.
func Hibernated(s *Sandbox) bool { return s.Spec.Paused && s.Spec.Restore != nil }

// Restoring reports whether the sandbox is resumed and its files are not restored yet, in
// a pod that it has or is to get. No request may reach it.
func Restoring(s *Sandbox) bool { return !s.Spec.Paused && s.Spec.Restore != nil }

// WithoutPod reports whether the sandbox has no pod and its files are kept: it hibernates, or
// is resumed and waits for a pod.
func WithoutPod(s *Sandbox) bool { return s.Spec.Restore != nil && s.Spec.Binding == nil }

// Saving reports whether what resumes the sandbox waits until its files are kept, and then
// restores them. Where keeping them has failed for a minute it is resumed with its memory.
func Saving(s *Sandbox) bool {
	return NextPauseStep(s) == PauseStepSave && StateOfPause(s) != ReasonSaveFailed
}

// StateOfPause returns how far the pause or resume that the sandbox's spec asks for has come;
// empty if the status is about another one, or nothing was ever asked for.
func StateOfPause(s *Sandbox) PauseState {
	if p := s.Status.Pause; p != nil && p.Order == s.Spec.PauseOrder {
		return p.State
	}
	return ""
}

// Stopped reports whether, by its status, a freezer has stopped the sandbox's processes and
// has not said since that they run. Such a sandbox is not taken for one without a freezer.
func Stopped(s *Sandbox) bool { return s.Status.Pause != nil && s.Status.Pause.Stopped }

// NotFreezing reports why the pause that the sandbox's spec asks for will not be carried
// out, ReasonNoFreezer or ReasonFreezeFailed; nothing if it may be.
func NotFreezing(s *Sandbox) PauseState {
	switch state := StateOfPause(s); state {
	case ReasonNoFreezer, ReasonFreezeFailed:
		return state
	}
	return ""
}
