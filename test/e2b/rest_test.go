package e2b

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// specFile is the document that the REST API is made from.
const specFile = "../../gateway/restapi/openapi.yaml"

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// team is an API key and the namespace that it is for, with a pool base in it.
type team struct{ namespace, key string }

// newTeam makes a team whose pool is that of `sandlane up` but for what change
// makes of it.
func newTeam(t *testing.T, name string, change func(*v1alpha1.SandboxPool)) team {
	t.Helper()
	ns := shared.Namespace(t)
	out, err := shared.Run(t.Context(), "apikey", "create", "--team", name, "--namespace", ns)
	if err != nil {
		t.Fatalf("make a key of team %s: %v\n%s", name, err, out)
	}
	key, _, _ := strings.Cut(out, "\n")
	var base v1alpha1.SandboxPool
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "base"}, &base); err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "base"}, Spec: base.Spec}
	pool.Spec.Replicas = 1
	pool.Spec.FirstRequest = nil
	change(pool)
	if err := shared.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	shared.WaitIdle(t, ns, pool.Name, int(pool.Spec.Replicas))
	return team{namespace: ns, key: key}
}

// request is one request through Envoy; host is empty for the gateway's own.
type request struct {
	method, host, path, body string
	header                   map[string]string
}

// send sends it with a JSON body unless its header says otherwise.
func (r request) send(t *testing.T) stack.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, shared.Up.GatewayURL+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	if r.host != "" {
		req.Host = r.host
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	a, err := stack.Send(nil, req)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	return a
}

// ask asks the REST API; headers are pairs.
func (m team) ask(t *testing.T, method, path, body string, headers ...string) stack.Answer {
	t.Helper()
	all := map[string]string{"X-API-KEY": m.key}
	for i := 0; i < len(headers); i += 2 {
		all[headers[i]] = headers[i+1]
	}
	return request{method: method, path: path, body: body, header: all}.send(t)
}

// created is what a create or a detail view says.
type created struct {
	SandboxID          string
	EnvdAccessToken    string
	TrafficAccessToken string
	EndAt              time.Time
}

func (m team) create(t *testing.T, body string, headers ...string) created {
	t.Helper()
	a := m.ask(t, "POST", "/v2/sandboxes", body, headers...)
	if a.Status != 201 {
		t.Fatalf("create: %v", a)
	}
	return decoded[created](t, a)
}

func decoded[T any](t *testing.T, a stack.Answer) (v T) {
	t.Helper()
	if err := json.NewDecoder(bytes.NewReader(a.Body)).Decode(&v); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
	return v
}
