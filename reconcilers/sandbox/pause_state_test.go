package sandbox

import (
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// How far a step has come is said by its order's outcome; what is stopped is never said to have no
// freezer.
func TestStateOfStep(t *testing.T) {
	const freeze, save, thaw = v1alpha1.PauseStepFreeze, v1alpha1.PauseStepSave, v1alpha1.PauseStepThaw
	done, none, late, silent := outcome{done: true}, outcome{noFreezer: true}, outcome{late: true}, outcome{unanswered: true}
	for _, c := range []struct {
		step               v1alpha1.PauseStep
		o                  outcome
		stopped, byTimeout bool
		want               v1alpha1.PauseState
		again              bool
	}{
		{freeze, outcome{}, false, true, v1alpha1.ReasonFreezing, false},
		{freeze, done, false, false, v1alpha1.ReasonFrozen, false},
		{freeze, none, false, false, v1alpha1.ReasonNoFreezer, false},
		{freeze, none, true, true, v1alpha1.ReasonFreezing, true},
		{freeze, late, false, true, v1alpha1.ReasonFreezeFailed, false},
		{freeze, late, false, false, v1alpha1.ReasonFreezing, false},
		{freeze, late, true, true, v1alpha1.ReasonFreezing, false},
		{freeze, silent, false, true, v1alpha1.ReasonUnanswered, false},
		{freeze, silent, true, true, v1alpha1.ReasonFreezing, false},
		{save, outcome{}, true, true, v1alpha1.ReasonSaving, false},
		{save, done, true, true, v1alpha1.ReasonSaving, true},
		{save, none, false, true, v1alpha1.ReasonNoFreezer, false},
		{save, none, true, true, v1alpha1.ReasonSaving, true},
		{save, late, false, true, v1alpha1.ReasonFreezeFailed, false},
		{save, late, false, false, v1alpha1.ReasonSaveFailed, false},
		{save, late, true, true, v1alpha1.ReasonSaveFailed, false},
		{save, silent, false, true, v1alpha1.ReasonUnanswered, false},
		{save, silent, true, true, v1alpha1.ReasonSaveFailed, false},
		{thaw, outcome{}, true, true, v1alpha1.ReasonResuming, false},
		{thaw, done, true, true, v1alpha1.ReasonResumed, false},
		{thaw, none, false, true, v1alpha1.ReasonResumed, false},
		{thaw, none, true, true, v1alpha1.ReasonResuming, true},
		{thaw, late, true, true, v1alpha1.ReasonResuming, false},
		{thaw, silent, false, true, v1alpha1.ReasonResuming, false},
	} {
		if got, again := stateOfStep(c.step, c.o, "", c.stopped, c.byTimeout); got != c.want || again != c.again {
			t.Errorf("%s after %+v, stopped: %v, by a timeout: %v: %s, again: %v, want %s, %v",
				c.step, c.o, c.stopped, c.byTimeout, got, again, c.want, c.again)
		}
	}
}

// A sandbox whose files could not be kept stays SaveFailed until they are, also where the process
// is new and knows of no try: a request may resume it with its memory meanwhile.
func TestSaveFailedStays(t *testing.T) {
	const save, failed = v1alpha1.PauseStepSave, v1alpha1.ReasonSaveFailed
	for _, c := range []struct {
		o                  outcome
		stopped, byTimeout bool
		want               v1alpha1.PauseState
		again              bool
	}{
		{outcome{}, true, true, failed, false},
		{outcome{frozen: true}, true, true, failed, false},
		{outcome{}, false, false, failed, false},
		{outcome{noFreezer: true}, true, true, failed, true},
		{outcome{noFreezer: true}, false, false, v1alpha1.ReasonNoFreezer, false},
		{outcome{done: true}, true, true, v1alpha1.ReasonSaving, true},
	} {
		if got, again := stateOfStep(save, c.o, failed, c.stopped, c.byTimeout); got != c.want || again != c.again {
			t.Errorf("after %+v, stopped: %v, by a timeout: %v: %s, again: %v, want %s, %v", c.o, c.stopped, c.byTimeout, got, again, c.want, c.again)
		}
	}
}
