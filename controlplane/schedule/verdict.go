package schedule

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

// asError wraps err, whose verdict is v, in this package's sentinel for it.
func asError(v writes.Verdict, doing string, err error) error {
	switch v {
	case writes.Applied:
		return nil
	case writes.Gone:
		return fmt.Errorf("%s: %w", doing, ErrPodGone)
	case writes.Invalid:
		return fmt.Errorf("%s: %w", doing, &InvalidError{Reasons(err)})
	case writes.Forbidden:
		return fmt.Errorf("%s: %w: %w", doing, ErrForbidden, err)
	case writes.Throttled:
		return fmt.Errorf("%s: %w: %w", doing, ErrThrottled, err)
	case writes.Conflict:
		return fmt.Errorf("%s: %w", doing, errConflict)
	case writes.TestFailed:
		return fmt.Errorf("%s: %w", doing, ErrRefused)
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}

// Reasons says what the API server found wrong, without its messages where
// those may show the pod's spec, which holds environment values.
func Reasons(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "refused"
	}
	s := status.Status()
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return fmt.Sprintf("status %d", s.Code)
	}
	var all []string
	for _, c := range s.Details.Causes {
		text := c.Field + ": " + string(c.Type)
		if c.Type != metav1.CauseTypeForbidden && len(c.Message) <= 256 {
			text = c.Field + ": " + c.Message
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
