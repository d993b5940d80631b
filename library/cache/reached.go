package cache

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The functions below report whether an object has reached the state that a task waits for.
// Only states of the generation that the caller has read, or a later one, count: an informer
// that is behind may show an older generation, in which the sandbox was in that state for
// another reason. A condition counts only for the generation that it observed.

// pausedSince returns a function that reports whether all processes of the sandbox are
// stopped.
func pausedSince(generation int64) func(*v1alpha1.Sandbox) (bool, error) {
	return func(s *v1alpha1.Sandbox) (bool, error) {
		if err := endedError(s); err != nil {
			return false, err
		}
		if s.Generation < generation {
			return false, nil
		}
		if reason := v1alpha1.NotFreezing(s); reason != "" {
			return false, fmt.Errorf("%w: %s", ErrFailed, reason)
		}
		return s.Spec.Paused && isTrue(s, v1alpha1.SandboxConditionPaused), nil
	}
}

// resumedSince returns a function that reports whether the sandbox is not paused, is ready,
// and is known to run.
func resumedSince(generation int64) func(*v1alpha1.Sandbox) (bool, error) {
	return func(s *v1alpha1.Sandbox) (bool, error) {
		if err := endedError(s); err != nil {
			return false, err
		}
		// A sandbox whose freezer has not answered yet may be Ready too, so Awake is needed.
		return s.Generation >= generation && !s.Spec.Paused && v1alpha1.Awake(s) &&
			isTrue(s, v1alpha1.SandboxConditionReady), nil
	}
}

// readySince returns a function that reports whether the sandbox runs as its spec says and
// has the address of its claim.
func readySince(generation int64) func(*v1alpha1.Sandbox) (bool, error) {
	return func(s *v1alpha1.Sandbox) (bool, error) {
		if err := endedError(s); err != nil {
			return false, err
		}
		if s.Generation < generation || s.Status.ObservedGeneration < s.Generation {
			return false, nil
		}
		if c := current(s, v1alpha1.SandboxConditionReady); c != nil && c.Reason == v1alpha1.ReasonStartContainerFailed {
			return false, fmt.Errorf("%w: %s: %s", ErrFailed, c.Reason, c.Message)
		}
		if c := current(s, v1alpha1.SandboxConditionInplaceUpdated); c != nil && c.Reason == v1alpha1.ReasonInplaceUpdating {
			return false, nil
		}
		b := s.Spec.Binding
		return s.Status.Phase == v1alpha1.SandboxRunning && !s.Spec.Paused && v1alpha1.Awake(s) &&
			b != nil && s.Status.Address != "" && s.Status.AddressClaim == b.ClaimID, nil
	}
}

// endedError returns an ErrFailed for a sandbox that has ended or is being deleted; nil for
// any other.
func endedError(s *v1alpha1.Sandbox) error {
	switch end := s.Spec.End; {
	case end != nil:
		return fmt.Errorf("%w: it has ended: %s", ErrFailed, strings.TrimSuffix(string(end.Reason)+": "+end.Message, ": "))
	case s.DeletionTimestamp != nil:
		return fmt.Errorf("%w: it is being deleted", ErrFailed)
	}
	return nil
}

// checkpointed reports whether the checkpoint has succeeded and has the ID of its data.
func checkpointed(cp *v1alpha1.Checkpoint) (bool, error) {
	switch {
	case cp.DeletionTimestamp != nil, cp.Status.Phase == v1alpha1.CheckpointTerminating:
		return false, fmt.Errorf("%w: it is being deleted", ErrFailed)
	case cp.Status.Phase == v1alpha1.CheckpointFailed:
		return false, fmt.Errorf("%w: it has failed: %s", ErrFailed, cp.Status.Message)
	case cp.Status.Phase != v1alpha1.CheckpointSucceeded:
		return false, nil
	case cp.Status.CheckpointID == "":
		return false, fmt.Errorf("%w: it has succeeded without an ID", ErrFailed)
	}
	return true, nil
}

// current returns a condition that observed the present generation; nil if there is none.
func current(s *v1alpha1.Sandbox, kind string) *metav1.Condition {
	if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil && c.ObservedGeneration == s.Generation {
		return c
	}
	return nil
}

func isTrue(s *v1alpha1.Sandbox, kind string) bool {
	c := current(s, kind)
	return c != nil && c.Status == metav1.ConditionTrue
}

func describeSandbox(s *v1alpha1.Sandbox) string {
	text := fmt.Sprintf("phase %q, generation %d", s.Status.Phase, s.Generation)
	for _, c := range s.Status.Conditions {
		text += fmt.Sprintf(", %s %s (%s) of %d", c.Type, c.Status, c.Reason, c.ObservedGeneration)
	}
	return text
}

func describeCheckpoint(cp *v1alpha1.Checkpoint) string {
	return fmt.Sprintf("phase %q", cp.Status.Phase)
}
