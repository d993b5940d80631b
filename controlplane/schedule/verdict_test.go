package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestJudge(t *testing.T) {
	status := func(code int32) error { return statusError(code, metav1.StatusReasonUnknown, nil) }
	for _, tc := range []struct {
		name string
		err  error
		want verdict
	}{
		{"nil", nil, applied},
		{"422 without causes", refusal(), refused},
		{"422 with causes", invalidImage(), invalid},
		{"wrapped", fmt.Errorf("patch: %w", refusal()), refused},
		{"400", status(400), invalid},
		{"401", status(401), forbidden},
		{"403", status(403), forbidden},
		{"404", status(404), gone},
		{"408", status(408), ambiguous},
		{"409", status(409), conflicting},
		{"429", tooMany(1), throttled},
		{"500", status(500), ambiguous},
		{"503", status(http.StatusServiceUnavailable), ambiguous},
		{"504", status(504), ambiguous},
		{"deadline", context.DeadlineExceeded, ambiguous},
		{"lost connection", &url.Error{Op: "Patch", Err: io.ErrUnexpectedEOF}, ambiguous},
		{"read error", &net.OpError{Op: "read", Err: errors.New("reset")}, ambiguous},
		{"dial error", &url.Error{Op: "Patch", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, unreachable},
	} {
		if got := judge(tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestDelay(t *testing.T) {
	if d := delay(tooMany(3), time.Minute); d != 3*time.Second {
		t.Errorf("asked for 3s, waits %v", d)
	}
	if d := delay(tooMany(0), time.Minute); d != time.Minute {
		t.Errorf("asked for nothing, waits %v", d)
	}
}

// The API server shows a pod's spec, environment included, when it refuses a change.
func TestReasonsKeepSecrets(t *testing.T) {
	err := statusError(422, metav1.StatusReasonInvalid, &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "pod updates may not change: Env: SECRET"},
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "image", Message: "no spaces"},
	}})
	got := invalid.asError("claim", err)
	if !errors.Is(got, ErrInvalid) || strings.Contains(got.Error(), "SECRET") || !strings.Contains(got.Error(), "image: no spaces") {
		t.Errorf("got %v", got)
	}
}
