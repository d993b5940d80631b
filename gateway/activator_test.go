package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/test/pages"
)

// Each error that activation documents reaches extproc as docs/design/no-pod.md says; a
// client is told to retry only where that can help.
func TestActivationErrorsAreTranslated(t *testing.T) {
	quota := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: 403, Message: "exceeded quota: q"}}
	from := map[string]error{
		"ErrNoCapacity": activation.ErrNoCapacity, "NoStartError": &activation.NoStartError{Reason: "ErrImagePull"},
		"ErrUnavailable": activation.ErrUnavailable, "ErrInvalid": activation.ErrInvalid, "ErrForbidden": activation.ErrForbidden,
		"quota":           fmt.Errorf("%w: %w", activation.ErrForbidden, quota),
		"ErrPoolNotFound": activation.ErrPoolNotFound, "ErrShutdown": activation.ErrShutdown, "ErrNotReady": activation.ErrNotReady,
		"ErrUnusable": activation.ErrUnusable, "ErrEnded": activation.ErrEnded, "ErrExists": activation.ErrOtherTenant,
		"ErrNotRestorable": activation.ErrNotRestorable, "ErrNoMember": activation.ErrNoMember,
	}
	to := map[string]error{
		"ErrNoCapacity": extproc.ErrNoCapacity, "ErrNotPermitted": extproc.ErrNotPermitted,
		"ErrSandboxLimit": extproc.ErrSandboxLimit, "ErrPoolNotFound": extproc.ErrPoolNotFound, "ErrDraining": extproc.ErrDraining,
		"DeadlineExceeded": context.DeadlineExceeded, "ErrNotFound": extproc.ErrNotFound, "ErrExists": extproc.ErrExists,
		"ErrNotRestorable": extproc.ErrNotRestorable, "ErrNoMember": extproc.ErrNoMember,
	}
	named := map[string]bool{}
	for _, row := range pages.NoPod(t) {
		named[row["activation"]] = true
		said := from[row["activation"]]
		if said == nil {
			t.Fatalf("no-pod.md names an error that is not known here: %v", row)
		}
		said = fmt.Errorf("activate sandbox x: %w", &activation.RetryError{Err: said, After: 7})
		got := translate(said)
		var invalid *extproc.InvalidError
		var noStart *extproc.NoStartError
		switch want := row["extproc"]; want {
		case pages.None:
			if got != said { //nolint:errorlint // the very same error, not one that wraps it
				t.Errorf("%s: %v became %v, not passed on as it is", row["why"], said, got)
			}
		case "InvalidError":
			if !errors.As(got, &invalid) {
				t.Errorf("%s: %v became %v, want an InvalidError", row["why"], said, got)
			}
		case "NoStartError":
			if !errors.As(got, &noStart) || noStart.Reason != "ErrImagePull" || !errors.Is(got, extproc.ErrNoCapacity) {
				t.Errorf("%s: %v became %v, want a NoStartError with its reason", row["why"], said, got)
			}
		default:
			if to[want] == nil || !errors.Is(got, to[want]) {
				t.Errorf("%s: %v became %v, want %s", row["why"], said, got, want)
			}
		}
		var retry interface{ RetryAfter() time.Duration }
		if !errors.As(got, &retry) || retry.RetryAfter() != 7 {
			t.Errorf("%v lost when to retry", said)
		}
	}
	if len(named) != len(from) {
		t.Errorf("no-pod.md has %d of %d errors of an activation", len(named), len(from))
	}
	if translate(nil) != nil {
		t.Error("success became an error")
	}
}

// What the API server refuses for good is not answered as something that passes, and
// says which field, without what the field holds where that may be a secret.
func TestRefusalsAreTranslated(t *testing.T) {
	status := func(reason metav1.StatusReason, code int32, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: reason, Code: code, Message: message, Details: &metav1.StatusDetails{Causes: causes},
		}}
	}
	cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.image", Message: "no spaces"}
	for name, tc := range map[string]struct {
		from error
		want string // in the reason
	}{
		"of the API server": {fmt.Errorf("%w: %w", activation.ErrInvalid, status(metav1.StatusReasonInvalid, 422, "SECRET", cause)), "spec.image: no spaces"},
		"of the scheduler":  {fmt.Errorf("%w: claim pod SECRET: %w", activation.ErrInvalid, &schedule.InvalidError{Reason: "spec.image: no spaces"}), "spec.image: no spaces"},
		"of neither":        {fmt.Errorf("%w: of pod SECRET", activation.ErrInvalid), "refused"},
	} {
		var invalid *extproc.InvalidError
		got := translate(fmt.Errorf("activate sandbox x: %w", tc.from))
		if !errors.As(got, &invalid) || !errors.Is(got, activation.ErrInvalid) {
			t.Errorf("%s: became %v", name, got)
		} else if !strings.Contains(invalid.Reason, tc.want) || strings.Contains(invalid.Reason, "SECRET") {
			t.Errorf("%s: the client reads %q", name, invalid.Reason)
		}
	}
	quota := status(metav1.StatusReasonForbidden, 403, "sandboxes is forbidden: exceeded quota: q")
	got := translate(fmt.Errorf("bind sandbox x: %w: %w", activation.ErrForbidden, quota))
	if !errors.Is(got, extproc.ErrSandboxLimit) || errors.Is(got, extproc.ErrNotPermitted) {
		t.Errorf("a quota became %v", got)
	}
}
