package schedule

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/test/kubetest"
)

// The API server answers with the cordoned nodes alone, and with those that are now.
func TestCordonedNodesAreListed(t *testing.T) {
	c := kubetest.Client(t)
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
		var nodes map[string]bool
		kubetest.Eventually(t, "the API server's memory to have it", func() (err error) {
			if nodes, err = listCordoned(t.Context(), c); err == nil && nodes[down.Name] != want {
				err = fmt.Errorf("listed %v", nodes)
			}
			return err
		})
		if nodes[up.Name] {
			t.Errorf("listed %v", nodes)
		}
	}
	sees(true)
	down.Spec.Unschedulable = false
	if err := c.Update(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	sees(false)
}
