package schedule

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

// The API server shows a pod's spec, environment included, when it refuses a change.
func TestReasonsKeepSecrets(t *testing.T) {
	err := statusError(422, metav1.StatusReasonInvalid, &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "pod updates may not change: Env: SECRET"},
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "image", Message: "no spaces"},
	}})
	got := asError(writes.Invalid, "claim", err)
	if !errors.Is(got, ErrInvalid) || strings.Contains(got.Error(), "SECRET") || !strings.Contains(got.Error(), "image: no spaces") {
		t.Errorf("got %v", got)
	}
}
