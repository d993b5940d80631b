package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

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
	got := asError(jsonpatch.Invalid, "claim", err)
	if !errors.Is(got, ErrInvalid) || strings.Contains(got.Error(), "SECRET") || !strings.Contains(got.Error(), "image: no spaces") {
		t.Errorf("got %v", got)
	}
}
