package v1alpha1

import "testing"

// Each state of a sandbox has one next step; a status says something for one order alone.
func TestNextPauseStep(t *testing.T) {
	const pod, files = 1, 2 // what the sandbox has
	at := func(paused bool, mode PauseMode, has int, state PauseState, of int64) *Sandbox {
		s := &Sandbox{}
		s.Spec.Paused, s.Spec.PauseMode, s.Spec.PauseOrder = paused, mode, 3
		if has&pod != 0 {
			s.Spec.Binding = &Binding{ClaimID: "c"}
		}
		if has&files != 0 {
			s.Spec.Restore = &Restore{Checkpoint: "k"}
		}
		if state != "" {
			s.Status.Pause = &PauseStatus{Order: of, State: state}
		}
		return s
	}
	never := &Sandbox{}
	never.Spec.Binding = &Binding{ClaimID: "c"}
	for what, c := range map[string]struct {
		s     *Sandbox
		want  PauseStep
		awake bool
	}{
		"never paused":             {never, PauseStepNone, true},
		"paused, nothing written":  {at(true, PauseFreeze, pod, "", 0), PauseStepFreeze, false},
		"freezing":                 {at(true, PauseFreeze, pod, ReasonFreezing, 3), PauseStepFreeze, false},
		"not answered":             {at(true, PauseFreeze, pod, ReasonUnanswered, 3), PauseStepFreeze, false},
		"frozen":                   {at(true, PauseFreeze, pod, ReasonFrozen, 3), PauseStepNone, false},
		"frozen, as of then":       {at(true, PauseFreeze, pod, ReasonFrozen, 1), PauseStepFreeze, false},
		"frozen, then to be saved": {at(true, PauseHibernate, pod, ReasonFrozen, 2), PauseStepSave, false},
		"saving":                   {at(true, PauseHibernate, pod, ReasonSaving, 3), PauseStepSave, false},
		"not saved":                {at(true, PauseHibernate, pod, ReasonSaveFailed, 3), PauseStepSave, false},
		"given up":                 {at(true, PauseHibernate, files, ReasonSaving, 3), PauseStepNone, false},
		"hibernates":               {at(true, PauseHibernate, files, ReasonHibernated, 3), PauseStepNone, false},
		"resumed, without a pod":   {at(false, PauseHibernate, files, ReasonResuming, 3), PauseStepBind, false},
		"resumed, with a pod":      {at(false, PauseHibernate, files|pod, ReasonResuming, 3), PauseStepRestore, false},
		"restored":                 {at(false, PauseHibernate, pod, ReasonResuming, 3), PauseStepThaw, false},
		"resuming":                 {at(false, PauseFreeze, pod, ReasonResuming, 3), PauseStepThaw, false},
		"resumed, nothing written": {at(false, PauseFreeze, pod, "", 0), PauseStepThaw, false},
		"resumed":                  {at(false, PauseFreeze, pod, ReasonResumed, 3), PauseStepNone, true},
		"resumed, as of then":      {at(false, PauseFreeze, pod, ReasonResumed, 1), PauseStepThaw, false},
	} {
		if step, awake := NextPauseStep(c.s), Awake(c.s); step != c.want || awake != c.awake {
			t.Errorf("%s: %q, awake: %v", what, step, awake)
		}
	}
}
