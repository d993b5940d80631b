package schedule

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verdict says what an API server's answer to a conditional write means.
type verdict int

const (
	applied     verdict = iota
	refused             // 422 without causes: a test failed or an op did not apply
	invalid             // 422 with causes, 400, other client errors: never on any pod
	gone                // 404
	conflicting         // 409: not applied
	throttled           // 429: not applied
	forbidden           // 401, 403: not applied
	unreachable         // never left this machine: not applied
	ambiguous           // anything else: may have been applied, or still be
)

// judge classifies the error of a write. Only what is certain not to have been
// applied gets another verdict than ambiguous.
func judge(err error) verdict {
	if err == nil {
		return applied
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if notSent(err) {
			return unreachable
		}
		return ambiguous
	}
	s := status.Status()
	switch code := s.Code; {
	case code == http.StatusUnprocessableEntity:
		if s.Details != nil && len(s.Details.Causes) > 0 {
			return invalid
		}
		return refused
	case code == http.StatusNotFound:
		return gone
	case code == http.StatusConflict:
		return conflicting
	case code == http.StatusTooManyRequests:
		return throttled
	case code == http.StatusForbidden, code == http.StatusUnauthorized:
		return forbidden
	case code == http.StatusRequestTimeout:
		return ambiguous
	case code >= 400 && code < 500:
		return invalid
	}
	return ambiguous
}

// notSent reports whether the connection was never made.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// asError wraps err, whose verdict is v, in this package's sentinel for it.
func (v verdict) asError(doing string, err error) error {
	switch v {
	case applied:
		return nil
	case gone:
		return fmt.Errorf("%s: %w", doing, ErrPodGone)
	case invalid:
		return fmt.Errorf("%s: %w", doing, &InvalidError{Reasons(err)})
	case forbidden:
		return fmt.Errorf("%s: %w: %w", doing, ErrForbidden, err)
	case throttled:
		return fmt.Errorf("%s: %w: %w", doing, ErrThrottled, err)
	case conflicting:
		return fmt.Errorf("%s: %w", doing, errConflict)
	case refused:
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

// delay is how long the API server asked to wait; fallback if it did not say.
func delay(err error, fallback time.Duration) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return fallback
}
