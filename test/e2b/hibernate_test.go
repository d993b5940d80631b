package e2b

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// file asks sandboxd for a file of the sandbox through Envoy, or writes it.
func (m team) file(t *testing.T, s created, name, content string) stack.Answer {
	t.Helper()
	r := request{method: "GET", path: "/files?username=user&path=" + url.QueryEscape(name), body: content, header: map[string]string{
		"E2b-Sandbox-Id": s.SandboxID, "E2b-Sandbox-Port": "49983", "X-Access-Token": s.EnvdAccessToken,
	}}
	if content != "" {
		r.method, r.header["Content-Type"] = "POST", "application/octet-stream"
	}
	return r.send(t)
}

// A pause without the memory keeps the files and gives the pod up: it goes, its address is
// fenced, and who gets that next never answers for the sandbox. The next request resumes it
// in another pod, with its files and token; what was kept of it goes.
func TestHibernation(t *testing.T) {
	t.Parallel() // it waits more than it works
	m := newTeam(t, "resting", func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 2 })
	s := m.create(t, `{"templateID":"base","timeout":600,"envVars":{"MINE":"mine"}}`)
	if a := m.file(t, s, "/home/user/kept.txt", "what is kept"); a.Status != 200 {
		t.Fatalf("writing the file: %v", a)
	}
	before, _ := shared.Sandbox(t, s.SandboxID)
	if a := m.ask(t, "POST", "/sandboxes/"+s.SandboxID+"/pause", `{"memory":false}`); a.Status != 204 {
		t.Fatalf("pause: %v", a)
	}
	if a := m.ask(t, "GET", "/sandboxes/"+s.SandboxID, ""); a.Status != 200 || !strings.Contains(string(a.Body), `"state":"paused"`) {
		t.Errorf("get: %v", a)
	}
	if a := m.file(t, s, "/home/user/kept.txt", ""); a.Status != 502 {
		t.Errorf("a request to what no request resumes: %v", a)
	}
	shared.Eventually(t, 2*time.Minute, "the pod to be gone and its address to be fenced", func() (bool, string) {
		for _, pod := range shared.PodsOf(t, m.namespace) {
			if string(pod.UID) == before.Spec.Binding.PodUID {
				return false, fmt.Sprintf("pod %s is %s", pod.Name, v1alpha1.PhaseOf(&pod))
			}
		}
		now, _ := shared.Sandbox(t, s.SandboxID)
		return v1alpha1.Hibernated(&now) && now.Status.Phase == v1alpha1.SandboxPaused && now.Status.FencedAt != nil, fmt.Sprintf("%+v", now.Status)
	})
	others := []created{m.create(t, `{"templateID":"base","timeout":600}`), m.create(t, `{"templateID":"base","timeout":600}`)}
	for _, other := range others {
		if a := m.file(t, other, "/home/user/kept.txt", "another's"); a.Status != 200 {
			t.Errorf("another sandbox: %v", a)
		}
	}
	for range 20 {
		if a := m.file(t, s, "/home/user/kept.txt", ""); a.Status != 502 {
			t.Fatalf("while others have its address: %v", a)
		}
	}
	now, _ := shared.Sandbox(t, s.SandboxID)
	base := now.DeepCopy()
	now.Spec.Timeouts.OnTimeout, now.Spec.Timeouts.AutoResume = v1alpha1.TimeoutPause, v1alpha1.AutoResumeAlways
	if err := shared.Client.Patch(t.Context(), &now, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, 2*time.Minute, "a request to resume it", func() (bool, string) {
		a := m.file(t, s, "/home/user/kept.txt", "")
		if a.Status == 200 && string(a.Body) != "what is kept" {
			t.Fatalf("resumed: %v", a)
		}
		return a.Status == 200, a.String() // its gateway hears of the patch a moment later
	})
	after, _ := shared.Sandbox(t, s.SandboxID)
	if after.Spec.Restore != nil || after.Spec.Binding.ClaimID == before.Spec.Binding.ClaimID || after.UID != before.UID {
		t.Errorf("after it: %+v", after.Spec)
	}
	// As soon as it is restored, not at a look each minute: it counts as a snapshot till then.
	shared.Eventually(t, 30*time.Second, "what was kept to go", func() (bool, string) {
		var left v1alpha1.CheckpointList
		if err := shared.Client.List(t.Context(), &left, client.InNamespace(m.namespace)); err != nil {
			t.Fatal(err)
		}
		return len(left.Items) == 0, fmt.Sprintf("%d are left", len(left.Items))
	})
	for _, one := range append(others, s) {
		if a := m.ask(t, "DELETE", "/sandboxes/"+one.SandboxID, ""); a.Status != 204 {
			t.Errorf("kill: %v", a)
		}
	}
}
