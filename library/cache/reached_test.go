package cache

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

type change func(*v1alpha1.Sandbox)

// running is a sandbox of generation 3 that runs and was paused once.
func running(changes ...change) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 3}}
	s.Spec.Binding, s.Spec.PauseMode, s.Spec.PauseOrder = &v1alpha1.Binding{ClaimID: "c"}, v1alpha1.PauseFreeze, 3
	s.Status.Phase, s.Status.Address, s.Status.AddressClaim = v1alpha1.SandboxRunning, "10.0.0.1", "c"
	s.Status.ObservedGeneration = 3
	cond(v1alpha1.SandboxConditionReady, metav1.ConditionTrue, "Running", 3)(s)
	cond(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonResumed, 3)(s)
	for _, c := range changes {
		c(s)
	}
	return s
}

// frozen is a sandbox of generation 3 that is paused.
func frozen(changes ...change) *v1alpha1.Sandbox {
	return running(append([]change{func(s *v1alpha1.Sandbox) {
		s.Spec.Paused, s.Status.Phase = true, v1alpha1.SandboxPaused
		cond(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, "Paused", 3)(s)
		cond(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen, 3)(s)
	}}, changes...)...)
}

func cond(kind string, status metav1.ConditionStatus, reason string, generation int64) change {
	return func(s *v1alpha1.Sandbox) {
		if kind == v1alpha1.SandboxConditionPaused { // its order is the generation here
			s.Status.Pause = &v1alpha1.PauseStatus{Order: generation, State: v1alpha1.PauseState(reason)}
		}
		for i := range s.Status.Conditions {
			if s.Status.Conditions[i].Type == kind {
				s.Status.Conditions[i] = s.Status.Conditions[len(s.Status.Conditions)-1]
				s.Status.Conditions = s.Status.Conditions[:len(s.Status.Conditions)-1]
				break
			}
		}
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, ObservedGeneration: generation})
	}
}

func ended(s *v1alpha1.Sandbox)      { s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased} }
func deleted(s *v1alpha1.Sandbox)    { at := metav1.Now(); s.DeletionTimestamp = &at }
func changed(s *v1alpha1.Sandbox)    { s.Generation++ }
func unobserved(s *v1alpha1.Sandbox) { s.Status.ObservedGeneration-- }
func unpaused(s *v1alpha1.Sandbox)   { s.Spec.Paused = false }

type verdict string

const (
	waits, comes, fails verdict = "waits", "comes", "fails"
)

func judge(done bool, err error) verdict {
	switch {
	case errors.Is(err, ErrFailed) && !done:
		return fails
	case err == nil && done:
		return comes
	case err == nil:
		return waits
	}
	return verdict("an error of its own: " + err.Error())
}

// For each kind of task: the states that it waits for, the states in which it goes on
// waiting, and those that end it with ErrFailed.
func TestReached(t *testing.T) {
	for what, c := range map[string]struct {
		s                    *v1alpha1.Sandbox
		pause, resume, ready verdict
	}{
		"running":          {running(), waits, comes, comes},
		"never paused":     {running(func(s *v1alpha1.Sandbox) { s.Spec.PauseMode = "" }), waits, comes, comes},
		"frozen":           {frozen(), comes, waits, waits},
		"ended":            {running(ended), fails, fails, fails},
		"ended and frozen": {frozen(ended), fails, fails, fails},
		"being deleted":    {frozen(deleted), fails, fails, fails},

		"paused, status behind":       {frozen(changed), waits, waits, waits},
		"freezing":                    {frozen(cond(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonFreezing, 3)), waits, waits, waits},
		"nothing to freeze it":        {frozen(cond(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonNoFreezer, 3)), fails, waits, waits},
		"its freezer fails":           {frozen(cond(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonFreezeFailed, 3)), fails, waits, waits},
		"it had no freezer before":    {frozen(cond(v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonNoFreezer, 2)), waits, waits, waits},
		"frozen, paused taken off":    {frozen(unpaused), waits, waits, waits},
		"resumed, status behind":      {running(changed), waits, waits, waits},
		"ready before it is awake":    {running(cond(v1alpha1.SandboxConditionPaused, metav1.ConditionUnknown, v1alpha1.ReasonResuming, 3)), waits, waits, waits},
		"awake, not ready":            {running(cond(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, "Starting", 3)), waits, waits, comes},
		"not observed yet":            {running(unobserved), waits, comes, waits},
		"of an older generation":      {running(func(s *v1alpha1.Sandbox) { s.Generation = 2 }), waits, waits, waits},
		"starting":                    {running(func(s *v1alpha1.Sandbox) { s.Status.Phase = v1alpha1.SandboxStarting }), waits, comes, waits},
		"at no address":               {running(func(s *v1alpha1.Sandbox) { s.Status.Address = "" }), waits, comes, waits},
		"at a former claim's address": {running(func(s *v1alpha1.Sandbox) { s.Status.AddressClaim = "b" }), waits, comes, waits},
		"unbound":                     {running(func(s *v1alpha1.Sandbox) { s.Spec.Binding = nil }), waits, comes, waits},
		"being updated":               {running(cond(v1alpha1.SandboxConditionInplaceUpdated, metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating, 3)), waits, comes, waits},
		"updated":                     {running(cond(v1alpha1.SandboxConditionInplaceUpdated, metav1.ConditionTrue, v1alpha1.ReasonInplaceUpdated, 3)), waits, comes, comes},
		"not started":                 {running(cond(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, 3)), waits, waits, fails},
		"not started before":          {running(cond(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, 2), unobserved), waits, waits, waits},
	} {
		t.Run(what, func(t *testing.T) {
			for _, x := range []struct {
				what string
				f    func(*v1alpha1.Sandbox) (bool, error)
				want verdict
			}{{"pause", pausedSince(3), c.pause}, {"resume", resumedSince(3), c.resume}, {"ready", readySince(3), c.ready}} {
				if got := judge(x.f(c.s)); got != x.want {
					t.Errorf("%s %s, want %s", x.what, got, x.want)
				}
			}
		})
	}
}

func TestCheckpointed(t *testing.T) {
	at := metav1.Now()
	for what, c := range map[string]struct {
		status  v1alpha1.CheckpointStatus
		deleted *metav1.Time
		want    verdict
	}{
		"new":                  {v1alpha1.CheckpointStatus{}, nil, waits},
		"pending":              {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointPending}, nil, waits},
		"creating, with an ID": {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointCreating, CheckpointID: "id"}, nil, waits},
		"succeeded":            {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded, CheckpointID: "id"}, nil, comes},
		"succeeded without ID": {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded}, nil, fails},
		"failed":               {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointFailed, CheckpointID: "id"}, nil, fails},
		"terminating":          {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointTerminating, CheckpointID: "id"}, nil, fails},
		"being deleted":        {v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded, CheckpointID: "id"}, &at, fails},
	} {
		cp := &v1alpha1.Checkpoint{Status: c.status}
		cp.DeletionTimestamp = c.deleted
		if got := judge(checkpointed(cp)); got != c.want {
			t.Errorf("%s: it %s, want %s", what, got, c.want)
		}
	}
}
