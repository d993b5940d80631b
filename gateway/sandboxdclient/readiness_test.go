package sandboxdclient

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestHasRun(t *testing.T) {
	now := metav1.Now()
	claimed := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339Nano) }
	for name, tt := range map[string]struct {
		started *metav1.Time
		claimed string
		want    bool
	}{
		"just claimed":                           {nil, claimed(time.Second), false},
		"just claimed, the controller was quick": {&now, claimed(time.Second), true},
		"the controller is behind":               {nil, claimed(2 * neverRanFor), true},
		"an unreadable claim time":               {nil, "", true},
	} {
		s, pod := &v1alpha1.Sandbox{}, &corev1.Pod{}
		s.Status.StartedAt = tt.started
		pod.Annotations = map[string]string{v1alpha1.AnnotationClaimedAt: tt.claimed}
		if got := hasRun(s, pod); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
