package local

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What is wrong with an env is said, and fails the command.
func TestStatusShowsEnvs(t *testing.T) {
	r := report{now: time.Now(), Running: Running{Gateways: []GatewayInfo{{}}}}
	var none, some strings.Builder
	if err := r.write(&none); err != nil || strings.Contains(none.String(), "ENV") {
		t.Errorf("without envs: %v\n%s", err, none.String())
	}
	good := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "good"}}
	good.Spec.TemplateRef.Name = "t"
	good.Status = v1alpha1.SandboxEnvStatus{Members: 2, Idle: 3, Running: 4, Waiting: 5, Conditions: []metav1.Condition{
		{Type: v1alpha1.EnvConditionReady, Status: metav1.ConditionTrue}, {Type: v1alpha1.EnvConditionTemplateConsistent, Status: metav1.ConditionTrue},
	}}
	bad := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bad"}}
	bad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.EnvConditionTemplateConsistent, Status: metav1.ConditionFalse, Message: "member m: not on a Sunday"}}
	r.envs = []v1alpha1.SandboxEnv{good, bad}
	if err := r.write(&some); err != nil || !strings.Contains(strings.Join(strings.Fields(some.String()), " "), "ns/good t 2 3 4 5 True") {
		t.Errorf("with envs: %v\n%s", err, some.String())
	}
	if got := strings.Join(r.wrong(), "; "); !strings.Contains(got, "the env ns/bad: member m: not on a Sunday") || strings.Contains(got, "good") {
		t.Errorf("wrong: %q", got)
	}
}

// A pool's line says why no pod of it is idle, unless it is to have none.
func TestStatusShowsWhyNoPodIsIdle(t *testing.T) {
	r := report{now: time.Now(), Running: Running{Gateways: []GatewayInfo{{}}}}
	pool := func(name string, replicas int32, status metav1.ConditionStatus) v1alpha1.SandboxPool {
		p := v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		p.Spec.Replicas = replicas
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolConditionAvailable, Status: status, Message: "of " + name}}
		return p
	}
	r.pools = []v1alpha1.SandboxPool{pool("pulls", 1, metav1.ConditionFalse), pool("none", 0, metav1.ConditionFalse), pool("good", 1, metav1.ConditionTrue)}
	var out strings.Builder
	if err := r.write(&out); err != nil || !strings.Contains(out.String(), "of pulls") || strings.Contains(out.String(), "of none") || strings.Contains(out.String(), "of good") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Each gateway's line says whether its Envoy answers hits by itself.
func TestStatusShowsTheFastPath(t *testing.T) {
	r := report{now: time.Now()}
	for name, metrics := range map[string]string{
		"on":      "# TYPE sandlane_fastpath_trusted gauge\nsandlane_fastpath_trusted 1\n",
		"waiting": "sandlane_fastpath_trusted 0\n",
		"off":     "sandlane_routecache_entries 1\n",
		"?":       "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if metrics == "" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, "sandlane_controlplane_lease_held 1\n"+metrics)
		}))
		t.Cleanup(server.Close)
		gateway := "gateway-" + name
		r.Gateways = append(r.Gateways, GatewayInfo{Name: gateway, URL: "http://" + name, MetricsURL: server.URL})
		r.leases = append(r.leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: gateway, CreationTimestamp: metav1.NewTime(r.now)}})
	}
	r.fast = fastPaths(t.Context(), r.Gateways)
	var out strings.Builder
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"GATEWAY URL FAST PATH LEASE RENEWED", "http://on on 0s", "http://waiting waiting 0s", "http://off off 0s", "http://? ? 0s"} {
		if !strings.Contains(text, want) {
			t.Errorf("the status lacks %q:\n%s", want, out.String())
		}
	}
}
