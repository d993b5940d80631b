package e2b

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// The two teams of this test: alpha's sandbox is full of the word, beta must
// never read it.
const (
	mark     = "alphas-own"
	markPath = "/home/user/alphas-own-file"
)

// victim is alpha's sandbox and all that must not come out of it.
type victim struct {
	created
	owner   team
	address string // of its pod
	cursor  string // of a list that has it
}

// Two teams: by no operation of the REST API, and by no way to a sandbox, does
// one see, reach, move or end what is the other's, nor learn that it exists.
func TestTwoTeams(t *testing.T) {
	alpha := newTeam(t, "alpha", func(p *v1alpha1.SandboxPool) {
		p.Annotations = map[string]string{v1alpha1.AnnotationAliases: mark + "-template"}
		p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey}
	})
	beta := newTeam(t, "beta", func(p *v1alpha1.SandboxPool) {
		p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey}
	})
	body := fmt.Sprintf(`{"templateID":"base","timeout":900,"metadata":{"owner":"%s"},"envVars":{"OWNER":"%s"},"network":{"allowPublicTraffic":false}}`, mark, mark)
	v := victim{owner: alpha, created: alpha.create(t, body, "Idempotency-Key", mark)}
	v.write(t, markPath, mark)
	v.address = addressOf(t, v.SandboxID)
	// The same create with the same name is beta's own.
	own := victim{owner: beta, created: beta.create(t, strings.ReplaceAll(body, mark, "beta"), "Idempotency-Key", mark)}
	if own.SandboxID == v.SandboxID {
		t.Fatalf("beta's create was answered with alpha's sandbox %s", v.SandboxID)
	}
	own.write(t, markPath, "beta's own")
	second := alpha.create(t, `{"templateID":"base"}`)
	v.cursor = alpha.ask(t, "GET", "/v2/sandboxes?limit=1", "").Header.Get("X-Next-Token")
	if v.cursor == "" {
		t.Fatal("alpha's list of two has no second page")
	}
	before := v.detail(t)

	t.Run("REST", func(t *testing.T) { v.everyOperation(t, beta) })
	t.Run("sandboxd", func(t *testing.T) { v.everyWay(t, own) })
	t.Run("first requests", func(t *testing.T) { v.firstRequests(t, own) })

	if after := v.detail(t); string(after.Body) != string(before.Body) {
		t.Errorf("alpha's sandbox was %s\nand is %s", before.Body, after.Body)
	}
	if a := v.file(v.EnvdAccessToken).send(t); string(a.Body) != mark {
		t.Errorf("alpha's file is %v", a)
	}
	// And all of it works for alpha: what beta was refused is there.
	alpha.ask(t, "DELETE", "/sandboxes/"+second.SandboxID, "")
	t.Run("REST by its owner", v.ownOperations)
}

func (v victim) detail(t *testing.T) stack.Answer {
	t.Helper()
	a := v.owner.ask(t, "GET", "/sandboxes/"+v.SandboxID, "")
	if a.Status != 200 {
		t.Fatalf("alpha's sandbox: %v", a)
	}
	return a
}

// file is a request for the marked file by the headers that SDKs send.
func (v victim) file(token string) request {
	return request{method: "GET", path: "/files?path=" + markPath, header: map[string]string{
		"E2b-Sandbox-Id": v.SandboxID, "E2b-Sandbox-Port": "49983", "X-Access-Token": token,
	}}
}

func (v victim) write(t *testing.T, path, text string) {
	t.Helper()
	r := v.file(v.EnvdAccessToken)
	r.method, r.path, r.body = "POST", "/files?path="+path, text
	r.header["Content-Type"] = "application/octet-stream"
	if a := r.send(t); a.Status != 200 {
		t.Fatalf("write a file: %v", a)
	}
}

func addressOf(t *testing.T, id string) (address string) {
	t.Helper()
	for _, p := range shared.PodsOf(t, "") {
		if p.Labels[v1alpha1.LabelSandboxID] == id {
			address = p.Status.PodIP
		}
	}
	if address == "" {
		t.Fatalf("sandbox %s has no pod with an address", id)
	}
	return address
}
