package schedule

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

// asError wraps err, whose verdict is v, in this package's sentinel for it.
func asError(v jsonpatch.Verdict, doing string, err error) error {
	switch v {
	case jsonpatch.Applied:
		return nil
	case jsonpatch.Gone:
		return fmt.Errorf("%s: %w", doing, ErrPodGone)
	case jsonpatch.Invalid:
		return fmt.Errorf("%s: %w", doing, &InvalidError{Reasons(err)})
	case jsonpatch.Forbidden:
		return fmt.Errorf("%s: %w: %w", doing, ErrForbidden, err)
	case jsonpatch.Throttled:
		return fmt.Errorf("%s: %w: %w", doing, ErrThrottled, err)
	case jsonpatch.Conflict:
		return fmt.Errorf("%s: %w", doing, errConflict)
	case jsonpatch.TestFailed:
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
