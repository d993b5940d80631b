package writes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestJudge(t *testing.T) {
	status := func(code int32, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Details: &metav1.StatusDetails{Causes: causes},
		}}
	}
	named := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: reason}}
	}
	cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.image"}
	for _, tc := range []struct {
		name string
		err  error
		want Verdict
	}{
		{"nil", nil, Applied},
		{"422 without causes", status(422), TestFailed},
		{"422 with causes", status(422, cause), Invalid},
		{"wrapped", fmt.Errorf("patch: %w", status(422)), TestFailed},
		{"400", status(400), Invalid},
		{"400 with a reason", named(metav1.StatusReasonBadRequest), Invalid},
		{"401", status(401), Forbidden},
		{"403", status(403), Forbidden},
		{"404", status(404), Gone},
		{"405", status(405), Invalid},
		{"408", status(408), Ambiguous},
		{"409", status(409), Conflict},
		{"409 of a create", apierrors.NewAlreadyExists(schema.GroupResource{}, "x"), Conflict},
		{"413", status(413), Invalid},
		{"415", status(415), Invalid},
		{"429", status(429), Throttled},
		{"500", status(500), Ambiguous},
		{"503", status(503), Ambiguous},
		{"504", status(504), Ambiguous},
		{"deadline", context.DeadlineExceeded, Ambiguous},
		{"lost connection", &url.Error{Op: "Patch", Err: io.ErrUnexpectedEOF}, Ambiguous},
		{"read error", &net.OpError{Op: "read", Err: errors.New("reset")}, Ambiguous},
		{"dial error", &url.Error{Op: "Patch", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, NotSent},
	} {
		if got := Judge(tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
		if got, want := Refused(tc.err), tc.want == TestFailed; got != want {
			t.Errorf("%s: refused is %v", tc.name, got)
		}
		if got, want := Moved(tc.err), tc.want == TestFailed || tc.want == Gone; got != want {
			t.Errorf("%s: moved is %v", tc.name, got)
		}
	}
}
