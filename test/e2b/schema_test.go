package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	// examples is how many requests Schemathesis makes up for each operation,
	// besides those that follow from the document.
	examples = 8
	// schemaTime bounds the run of Schemathesis, which takes half of it.
	schemaTime = 4 * time.Minute
)

// notByChance are the operations that no made-up request does: sandboxes of others' making
// are ended as soon as they are there, a build needs IDs of one that waits, a hash, and a signed
// URL, and tags are of templates that were built. TestTemplateBuild asks those. Without an
// egress process, as here, secrets are 501: TestEgressByName asks for them.
var notByChance = []string{
	"DELETE /sandboxes/{sandboxID}",
	"GET /templates/{templateID}/files/{hash}", "PUT /templates/{templateID}/files/{hash}",
	"POST /v2/templates/{templateID}/builds/{buildID}", "GET /templates/{templateID}/builds/{buildID}/status",
	"GET /templates/{templateID}/builds/{buildID}/logs", "POST /templates/tags", "DELETE /templates/tags",
	"GET /secrets", "POST /secrets", "GET /secrets/{secretID}", "POST /secrets/{secretID}", "DELETE /secrets/{secretID}",
}

// exchange is what a HAR file says of one request.
type exchange struct {
	Request struct {
		Method, URL string
		PostData    struct{ Text string }
	}
	Response struct {
		Status  int
		Content struct{ Text string }
	}
}

// Schemathesis, with requests that follow the document and that break it: every
// answer is one that the document describes. No answer blames the server but 501
// and 503, where the document lists them.
func TestSchemathesis(t *testing.T) {
	t.Parallel() // with TestIdleTimeout, which waits
	m := newTeam(t, "schema", func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 3 })
	sandbox := m.create(t, `{"templateID":"base","timeout":3600}`)
	ctx, cancel := context.WithTimeout(t.Context(), schemaTime)
	defer cancel()
	began := time.Now()
	said, all := schemathesis(ctx, t, m, sandbox.SandboxID)
	doc := document(t)
	seen, good := map[string]int{}, map[string]int{}
	for _, x := range all {
		name, operation := operationOf(t, doc, x)
		status := x.Response.Status
		if operation != nil {
			seen[name]++
			if status < 300 {
				good[name]++
			}
		}
		if status < 500 || operation != nil && (status == 501 || status == 503) && operation.Responses.Value(strconv.Itoa(status)) != nil {
			continue
		}
		t.Errorf("%s %s %s: %d %s", x.Request.Method, x.Request.URL, x.Request.PostData.Text, status, x.Response.Content.Text)
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			name := method + " " + path
			supported := !slices.Contains(operation.Tags, "unsupported")
			if seen[name] == 0 {
				t.Errorf("%s was not asked", name)
			}
			if supported && good[name] == 0 && !slices.Contains(notByChance, name) {
				t.Errorf("%s was not asked for anything that it does, in %d requests", name, seen[name])
			}
		}
	}
	if a := m.ask(t, "GET", "/sandboxes/"+sandbox.SandboxID, ""); a.Status != 200 {
		t.Errorf("the sandbox that all is about did not outlive it: %v", a)
	}
	t.Logf("%d requests for %d operations in %v", len(all), len(seen), time.Since(began).Round(time.Second))
	if t.Failed() {
		t.Log(said)
	}
}

// schemathesis runs it and returns what it said and what it asked.
func schemathesis(ctx context.Context, t *testing.T, m team, sandboxID string) (string, []exchange) {
	t.Helper()
	programs, dir := venv(ctx, t, "schemathesis-4.32.5.lock"), t.TempDir()
	absolute := func(path string) string {
		a, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	har := filepath.Join(dir, "har")
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "st"), "--no-color", "run", absolute(specFile), "--url", shared.Up.GatewayURL,
		"--header", "X-API-KEY: "+m.key, "--phases", "examples,coverage,fuzzing", "--checks",
		"status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance",
		"--max-examples", strconv.Itoa(examples), "--seed", "1", "--no-shrink", "--continue-on-failure", "--generation-database", "none",
		"--request-timeout", "60", "--warnings", "off", "--report", "har", "--report-har-path", har)
	// It leaves files in the folder where it runs.
	cmd.Dir = dir
	cmd.Env = append(m.env(), "SANDBOX_ID="+sandboxID, "SCHEMATHESIS_HOOKS=schema_hooks", "PYTHONPATH="+absolute("python"), "PYTHONDONTWRITEBYTECODE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("Schemathesis ended with %v", err)
	}
	text, err := os.ReadFile(har)
	if err != nil {
		t.Fatalf("%v; Schemathesis said:\n%s", err, out.String())
	}
	var file struct{ Log struct{ Entries []exchange } }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return out.String(), file.Log.Entries
}

// operationOf finds the operation that a request was for; nil where there is none,
// as for a method that a path does not have.
func operationOf(t *testing.T, doc *openapi3.T, x exchange) (name string, found *openapi3.Operation) {
	t.Helper()
	u, err := url.Parse(x.Request.URL)
	if err != nil {
		t.Fatal(err)
	}
	best := -1
	segments := strings.Split(u.EscapedPath(), "/")
	for path, item := range doc.Paths.Map() {
		names := 0 // of the path's segments that are no parameters
		want := strings.Split(path, "/")
		if len(want) != len(segments) {
			continue
		}
		for i, s := range want {
			switch {
			case strings.HasPrefix(s, "{"):
			case s == segments[i]:
				names++
			default:
				names = -1 << 10
			}
		}
		if operation := item.Operations()[x.Request.Method]; names > best && operation != nil {
			best, name, found = names, x.Request.Method+" "+path, operation
		}
	}
	return name, found
}
