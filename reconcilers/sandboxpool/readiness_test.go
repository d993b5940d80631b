package sandboxpool

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

type resolver map[string][]string

func (r resolver) ResolveDigests(_ context.Context, image string) ([]string, error) {
	if digests, ok := r[image]; ok {
		return digests, nil
	}
	return nil, errors.New("no such image")
}

func TestTwoTagsOfOneDigestAreResolved(t *testing.T) {
	v := claimedPod(v1alpha1.PodStarting, func(v *view) {
		v.pod.Spec.Containers[0].Image = "local/next"
		v.pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{
			Name: "main", Image: "local/twin:1", ImageID: "local/twin@" + digestB, ContainerID: "run://2", RestartCount: 1,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}
	})
	if d := decide(v, now); d.step != stepResolve {
		t.Fatalf("step %v, want the digest resolved", d.step)
	}
	for _, tt := range []struct {
		name     string
		resolver DigestResolver
		runs     bool
	}{
		{"nobody to ask", nil, false},
		{"unknown", resolver{}, false},
		{"another digest", resolver{"local/next": {digestA}}, false},
		{"one of its digests", resolver{"local/next": {digestA, digestB}}, true},
	} {
		r := &SandboxPoolReconciler{DigestResolver: tt.resolver}
		if runs, _ := r.resolves(t.Context(), v.pod, []string{"main"}); runs != tt.runs {
			t.Errorf("%s: %v", tt.name, runs)
		}
	}
}
