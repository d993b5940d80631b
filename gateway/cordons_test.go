package gateway

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/test/kubetest"
)

// The API server answers with the cordoned nodes alone, and with those that are now.
func TestCordonedNodesAreListed(t *testing.T) {
	c := kubetest.Client(t)
	var told map[string]bool
	watch := cordons{api: c, tell: func(nodes map[string]bool) { told = nodes }, log: slog.New(slog.DiscardHandler)}
	up, down := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("up")}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("down")}}
	down.Spec.Unschedulable = true
	for _, node := range []*corev1.Node{up, down} {
		if err := c.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(t.Context(), node) })
	}
	sees := func(want bool) {
		t.Helper()
		kubetest.Eventually(t, "the API server's memory to have it", func() error { return watch.sees(t, down.Name, want, &told) })
		if told[up.Name] {
			t.Errorf("told %v", told)
		}
	}
	sees(true)
	down.Spec.Unschedulable = false
	if err := c.Update(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	sees(false)
}

func (c cordons) sees(t *testing.T, node string, want bool, told *map[string]bool) error {
	if err := c.list(t.Context()); err != nil {
		return err
	}
	if (*told)[node] != want {
		return fmt.Errorf("told %v", *told)
	}
	return nil
}
