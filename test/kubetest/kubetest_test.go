package kubetest_test

import (
	"errors"
	"os"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// Pods need no service account here, and no create waits for a new CRD.
func TestNamespace(t *testing.T) {
	c := kubetest.Client(t)
	a, b := kubetest.Namespace(t), kubetest.Namespace(t)
	if a == b {
		t.Fatalf("both namespaces are %s", a)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "local/echo"}}},
	}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Errorf("creating a pod: %v", err)
	}
	began := time.Now()
	pool := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: b, Name: "p"},
		Spec:       v1alpha1.SandboxPoolSpec{TemplateRef: &v1alpha1.TemplateRef{Name: "t"}},
	}
	if err := c.Create(t.Context(), pool); err != nil {
		t.Errorf("creating a pool: %v", err)
	}
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("the first pool took %v: the API server still delays creates", took)
	}
}

func TestName(t *testing.T) {
	a, b := kubetest.Name("s"), kubetest.Name("s")
	if a == b || !regexp.MustCompile(v1alpha1.IDPattern).MatchString(a) {
		t.Errorf("names %q and %q: want two different sandbox IDs", a, b)
	}
}

func TestEventually(t *testing.T) {
	tries := 0
	kubetest.Eventually(t, "the third try", func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if tries != 3 {
		t.Errorf("%d tries, want 3", tries)
	}
}

func TestMissingBinaries(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	if err := kubetest.CheckAssets(); err == nil || !regexp.MustCompile("KUBEBUILDER_ASSETS is not set: run `make test`").MatchString(err.Error()) {
		t.Errorf("without binaries: %v", err)
	}
}
