package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// Gateways and controller ask the API server for what the list of their rights has
// and for nothing else, and use each of these rights: one cluster goes through all
// that needs one, and the API server's audit log is compared with the list.
func TestRightsAreThoseThatAreUsed(t *testing.T) {
	t.Parallel() // it has a cluster of its own, and waits more than it works
	s := startWith(t, t.TempDir(), "--pool-size", "2", "--isolation", "full", "--audit", "--lease-duration", "12s", "--lease-renew-every", "2s", "--drain-grace", "2s")
	u := rightsUser{t, s}
	ns := s.Namespace(t)
	u.restAPI()
	u.routing(ns)
	u.pools(ns)
	u.records(ns)
	u.gateways()
	s.Eventually(t, time.Minute, "each right to be used", func() (bool, string) {
		unused, err := s.CheckRights()
		if err != nil {
			t.Fatal(err)
		}
		return len(unused) == 0, "unused:\n" + strings.Join(unused, "\n")
	})
}

// rightsUser does what needs rights.
type rightsUser struct {
	t *testing.T
	s *stack.Stack
}

// ask sends a request to the REST API.
func (u rightsUser) ask(method, path, body string, want int) string {
	u.t.Helper()
	req, err := http.NewRequestWithContext(u.t.Context(), method, u.s.Up.GatewayURL+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", u.s.Up.APIKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		u.t.Fatalf("%s %s: %d %s, %v; want %d", method, path, res.StatusCode, text, err, want)
	}
	return string(text)
}

// restAPI makes a sandbox with rules for outgoing connections, changes and clears
// them, and reads its logs.
func (u rightsUser) restAPI() {
	made := u.ask("POST", "/sandboxes", `{"templateID":"base","allow_internet_access":false}`, http.StatusCreated)
	_, rest, _ := strings.Cut(made, `"sandboxID":"`)
	id, _, _ := strings.Cut(rest, `"`)
	u.ask("PUT", "/sandboxes/"+id+"/network", `{"denyOut":["192.0.2.0/24"]}`, http.StatusNoContent)
	u.ask("PUT", "/sandboxes/"+id+"/network", `{}`, http.StatusNoContent)
	u.ask("GET", "/sandboxes/"+id, "", http.StatusOK)
	u.ask("GET", "/sandboxes/"+id+"/logs", "", http.StatusOK)
	u.ask("GET", "/v2/sandboxes", "", http.StatusOK)
	u.ask("DELETE", "/sandboxes/"+id, "", http.StatusNoContent)
}

// routing has first requests wait for a pod, and one doubted after a connection
// that failed.
func (u rightsUser) routing(ns string) {
	u.s.Pool(u.t, ns, "one", 1, func(p *v1alpha1.SandboxPool) {
		// So long that no machine has the next pod ready before the second request asks.
		p.Spec.Template.Template.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 5
	})
	for _, id := range []string{"rights-a", "rights-b"} { // the second waits for the next pod
		u.s.Touch(u.t, id, ns+"/one")
	}
	if a := u.s.Do(u.t, nil, stack.Request{ID: "rights-a", Port: "9"}); a.Status != http.StatusBadGateway {
		u.t.Errorf("a closed port: %v", a)
	}
	u.s.Touch(u.t, "rights-a", ns+"/one") // read live
	// The controller takes the note that a claim waits away now, and would not for long once
	// gateways do not answer it.
	u.s.Eventually(u.t, 30*time.Second, "the note of waiting claims to go", func() (bool, string) {
		pool := &v1alpha1.SandboxPool{}
		pool.Namespace, pool.Name = ns, "one"
		if err := u.s.Client.Get(u.t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			u.t.Fatal(err)
		}
		note, has := pool.Annotations[v1alpha1.AnnotationScaleUpPending]
		return !has, note
	})
}

// pools has hooks, and pods that never get Ready.
func (u rightsUser) pools(ns string) {
	u.s.Pool(u.t, ns, "hooked", 1, func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.PostStartHooks = []v1alpha1.PostStartHook{{Name: "true", Exec: &v1alpha1.ExecHook{Command: []string{"true"}}}}
	})
	u.s.Touch(u.t, "rights-hooked", ns+"/hooked")
	unready := stack.EchoPool(ns, "unready", 1, func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Port.IntVal = 8001
		p.Spec.StartupTimeout = &metav1.Duration{Duration: time.Second}
	})
	if err := u.s.Client.Create(u.t.Context(), unready); err != nil {
		u.t.Fatal(err)
	}
}

// records has a sandbox whose record goes: one of a first request that never had a
// pod.
func (u rightsUser) records(ns string) {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "rights-unbound", Finalizers: []string{v1alpha1.FinalizerSandbox}}}
	s.Spec = v1alpha1.SandboxSpec{
		Namespace: ns, Pool: "one", FirstRequest: true, Timeouts: v1alpha1.SandboxTimeouts{Startup: &metav1.Duration{Duration: time.Second}},
	}
	if err := u.s.Client.Create(u.t.Context(), s); err != nil {
		u.t.Fatal(err)
	}
}

// gateways kills the gateway, stops the next one in order, and leaves the lease of
// one that never was: it acknowledges nothing, is revoked, and its time is over.
func (u rightsUser) gateways() {
	pid := u.s.Up.Pids["gateway"]
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		if err := syscall.Kill(pid, signal); err != nil {
			u.t.Fatal(err)
		}
		u.s.Eventually(u.t, 30*time.Second, "the next gateway", func() (bool, string) {
			if err := u.s.Reload(); err != nil {
				return false, err.Error()
			}
			before := pid
			if now := u.s.Up.Pids["gateway"]; now != 0 && now != before {
				pid = now
			}
			return pid != before, fmt.Sprint("still ", before)
		})
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: access.DefaultSystemNamespace, Name: "gone", Labels: map[string]string{v1alpha1.LabelGateway: "gone"},
			Annotations: map[string]string{v1alpha1.AnnotationGatewayAddress: "unix://" + u.t.TempDir() + "/nothing.sock"},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("gone/1"), LeaseDurationSeconds: new(int32(8)), RenewTime: &now, AcquireTime: &now},
	}
	if err := u.s.Client.Create(u.t.Context(), lease); err != nil {
		u.t.Fatal(err)
	}
	u.s.Eventually(u.t, 30*time.Second, "a gateway that serves", func() (bool, string) {
		a, err := u.s.Try(u.t.Context(), nil, stack.Request{ID: "rights-b"})
		return err == nil && a.Echo != nil, fmt.Sprint(a, err)
	})
	out, err := u.s.Run(u.t.Context(), "end", "rights-b") // its address wants an acknowledgement
	if err != nil {
		u.t.Fatalf("%v: %s", err, out)
	}
	// A lease that is deleted by hand before its time is over is written back.
	if err := u.s.Client.Delete(u.t.Context(), lease); err != nil {
		u.t.Fatal(err)
	}
}
