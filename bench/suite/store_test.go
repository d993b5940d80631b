package suite

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/sandlane/sandlane/test/kubetest"
)

// Objects in etcd are encoded so that the API server reads them as they were made.
func TestStored(t *testing.T) {
	p, err := stored(RunningPod("b7", 7))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(p.Request.Key); got != "/registry/pods/bench/python-pool-0000000007" {
		t.Errorf("key %s", got)
	}
	scheme := kubetest.Scheme()
	read, _, err := protobuf.NewSerializer(scheme, scheme).Decode(p.Request.Value, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if pod, ok := read.(*corev1.Pod); !ok || pod.Status.PodIP != "127.1.0.7" || pod.Labels["sandlane.dev/sandbox-id"] != "b7" {
		t.Errorf("read back %v", read)
	}
	s, err := stored(RunningSandbox("b7", 7))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Request.Key); got != "/registry/sandlane.dev/sandboxes/b7" || !bytes.Contains(s.Request.Value, []byte(`"kind":"Sandbox"`)) {
		t.Errorf("key %s, value %s", got, s.Request.Value)
	}
	if _, err := stored(&corev1.Node{}); err == nil {
		t.Error("a node was encoded")
	}
}

func TestScrape(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP x_total y\nx_total{outcome=\"hit\",reason=\"\"} 3\nx_total{outcome=\"hit\",reason=\"a b\"} 4\nx_total{outcome=\"miss\",reason=\"\"} 1e3\nx_total_more 7\nparked 2\n")
	}))
	defer server.Close()
	for _, c := range []struct {
		name, label string
		want        map[string]float64
	}{
		{"x_total", "outcome", map[string]float64{"hit": 7, "miss": 1000}},
		{"x_total", "", map[string]float64{"": 1007}},
		{"parked", "", map[string]float64{"": 2}},
	} {
		if got, err := scrape(t.Context(), server.URL, c.name, c.label); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s by %q: %v, %v; want %v", c.name, c.label, got, err, c.want)
		}
	}
	if _, err := scrape(t.Context(), server.URL, "absent", ""); err == nil {
		t.Error("a metric that is not there was read")
	}
}
