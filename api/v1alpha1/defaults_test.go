package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A creation time to the microsecond counts unless it contradicts the API server's.
func TestSandboxCreatedAt(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &Sandbox{}
	s.CreationTimestamp = metav1.NewTime(made)
	if at := SandboxCreatedAt(s); !at.Equal(made) {
		t.Errorf("without a time of its own: %v", at)
	}
	for off, counts := range map[time.Duration]bool{
		-time.Microsecond: true, 999_999 * time.Microsecond: true, time.Minute: true, -time.Minute: true,
		time.Minute + time.Microsecond: false, -time.Hour: false, 24 * time.Hour: false,
	} {
		s.Spec.CreatedAt = new(metav1.NewMicroTime(made.Add(off)))
		want := made
		if counts {
			want = made.Add(off)
		}
		if at := SandboxCreatedAt(s); !at.Equal(want) {
			t.Errorf("%v off: %v, want %v", off, at, want)
		}
	}
}
