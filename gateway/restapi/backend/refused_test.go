package backend

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

func TestRefusedForGood(t *testing.T) {
	status := func(code int32, causes ...metav1.StatusCause) error {
		return fmt.Errorf("writing: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Details: &metav1.StatusDetails{Causes: causes},
		}})
	}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"400", status(400), true},
		{"401", status(401), false},
		{"403", status(403), true},
		{"404", status(404), false},
		{"409", status(409), false},
		{"413", status(413), true},
		{"422", status(422), true},
		{"422 with causes", status(422, metav1.StatusCause{Field: "spec"}), true},
		{"429", status(429), false},
		{"500", status(500), false},
		{"deadline", context.DeadlineExceeded, false},
		{"moved", writes.ErrStale, false},
		{"nil", nil, false},
	} {
		if got := refusedForGood(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
