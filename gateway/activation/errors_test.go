package activation

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sandlane/sandlane/controlplane/schedule"
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
		"ErrNoCapacity": ErrNoCapacity, "ErrUnavailable": ErrUnavailable, "ErrInvalid": ErrInvalid,
		"ErrForbidden": ErrForbidden, "ErrPoolNotFound": ErrPoolNotFound,
	}
	seen := 0
	for _, row := range pages.NoPod(t) {
		if row["schedule"] == pages.None {
			continue
		}
		said, want := from[row["schedule"]], to[row["activation"]]
		if said == nil || want == nil {
			t.Fatalf("no-pod.md names an error that is not known here: %v", row)
		}
		seen++
		got := fromSchedule(fmt.Errorf("claim: %w", said))
		if !errors.Is(got, want) {
			t.Errorf("%s: %v became %v, want %v", row["why"], said, got, want)
		}
		var again *RetryError
		if passes := errors.Is(want, ErrNoCapacity) || errors.Is(want, ErrUnavailable); errors.As(got, &again) != passes {
			t.Errorf("%s: %v may be retried: %v, want %v", row["why"], got, !passes, passes)
		}
	}
	if seen != len(from) {
		t.Errorf("no-pod.md has %d of the scheduler's %d errors that end an activation", seen, len(from))
	}
	late := fmt.Errorf("%w: %w", schedule.ErrDeadline, schedule.ErrThrottled)
	if got := fromSchedule(late); !errors.Is(got, ErrUnavailable) || errors.Is(got, ErrNoCapacity) {
		t.Errorf("a deadline for want of an API server became %v", got)
	}
}
