package processes_test

import (
	"context"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandlane/sandlane/console/processes"
)

// The API server's proxy of pods takes the number of a port, and resolves no name.
func TestMetricsAreAskedByNumber(t *testing.T) {
	api := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "gateway-1", UID: "u", Labels: map[string]string{"app": "sandlane-gateway"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9102}}}}},
	})
	api.AddProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		return true, answer(action.(clienttesting.ProxyGetAction).GetPort()), nil
	})
	all, err := processes.InCluster(api, "system")(t.Context())
	if err != nil || len(all) != 1 || !all[0].Gateway || all[0].Name != "gateway-1-u" {
		t.Fatalf("%+v, %v", all, err)
	}
	if port, err := all[0].ReadMetrics(t.Context(), "/metrics"); err != nil || string(port) != "9102" {
		t.Errorf("asked at port %q, %v", port, err)
	}
}

type answer string

func (a answer) DoRaw(context.Context) ([]byte, error) { return []byte(a), nil }

func (a answer) Stream(context.Context) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
