package activation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/pages"
)

// The activation's errors for the scheduler's errors are those of docs/design/no-pod.md.
func TestSchedulersErrorsAsDocumented(t *testing.T) {
	from := map[string]error{
		"ErrDeadline": schedule.ErrDeadline, "ErrUnavailable": schedule.ErrUnavailable, "ErrThrottled": schedule.ErrThrottled,
		"ErrInvalid": schedule.ErrInvalid, "ErrForbidden": schedule.ErrForbidden,
		"ErrPoolGone": schedule.ErrPoolGone, "ErrShutdown": schedule.ErrShutdown,
	}
	to := map[string]error{
		"ErrNoCapacity": routing.ErrNoCapacity, "ErrUnavailable": routing.ErrUnavailable, "ErrInvalid": routing.ErrInvalid,
		"ErrNotPermitted": routing.ErrNotPermitted, "ErrPoolNotFound": routing.ErrPoolNotFound,
	}
	seen := 0
	for _, row := range pages.NoPod(t) {
		if row["schedule"] == pages.None {
			continue
		}
		said, want := from[row["schedule"]], to[row["error"]]
		if said == nil || want == nil {
			t.Fatalf("no-pod.md names an error that is not known here: %v", row)
		}
		seen++
		got := fromSchedule(fmt.Errorf("claim: %w", said))
		if !errors.Is(got, want) {
			t.Errorf("%s: %v became %v, want %v", row["why"], said, got, want)
		}
		var again *RetryError
		if passes := errors.Is(want, routing.ErrNoCapacity) || errors.Is(want, routing.ErrUnavailable); errors.As(got, &again) != passes {
			t.Errorf("%s: %v may be retried: %v, want %v", row["why"], got, !passes, passes)
		}
	}
	if seen != len(from) {
		t.Errorf("no-pod.md has %d of the scheduler's %d errors that end an activation", seen, len(from))
	}
	late := fmt.Errorf("%w: %w", schedule.ErrDeadline, schedule.ErrThrottled)
	if got := fromSchedule(late); !errors.Is(got, routing.ErrUnavailable) || errors.Is(got, routing.ErrNoCapacity) {
		t.Errorf("a deadline for want of an API server became %v", got)
	}
}

// What the API server refuses for good is no error that passes. It says which field, without
// what the field holds where that may be a secret.
func TestRefusalsSayWhatTheClientMayRead(t *testing.T) {
	status := func(reason metav1.StatusReason, code int32, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: reason, Code: code, Message: message, Details: &metav1.StatusDetails{Causes: causes},
		}}
	}
	cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.image", Message: "no spaces"}
	for name, tc := range map[string]struct {
		got  error
		want string // in the reason
	}{
		"of the API server": {finalError(status(metav1.StatusReasonInvalid, 422, "SECRET", cause)), "spec.image: no spaces"},
		"of the scheduler":  {fromSchedule(fmt.Errorf("%w: claim pod SECRET: %w", schedule.ErrInvalid, &schedule.InvalidError{Reason: "spec.image: no spaces"})), "spec.image: no spaces"},
		"of neither":        {fromSchedule(fmt.Errorf("%w: of pod SECRET", schedule.ErrInvalid)), "refused"},
	} {
		var invalid *routing.InvalidError
		if !errors.As(fmt.Errorf("activate: %w", tc.got), &invalid) || !errors.Is(tc.got, routing.ErrInvalid) {
			t.Errorf("%s: became %v", name, tc.got)
		} else if !strings.Contains(invalid.Reason, tc.want) || strings.Contains(invalid.Reason, "SECRET") {
			t.Errorf("%s: the client reads %q", name, invalid.Reason)
		}
	}
	quota := status(metav1.StatusReasonForbidden, 403, "sandboxes is forbidden: exceeded quota: q")
	for name, got := range map[string]error{"of a write": finalError(quota), "of a claim": fromSchedule(fmt.Errorf("%w: %w", schedule.ErrForbidden, quota))} {
		if !errors.Is(got, routing.ErrSandboxLimit) || errors.Is(got, routing.ErrNotPermitted) {
			t.Errorf("a quota %s became %v", name, got)
		}
	}
}
