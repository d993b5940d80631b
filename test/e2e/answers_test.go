package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// errorBody is the JSON of every error answer.
type errorBody struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	SandboxID string `json:"sandboxId"`
}

// wantError checks status and JSON of an error answer, and that the message
// contains each of the given words.
func wantError(t *testing.T, a stack.Answer, status int, words ...string) {
	t.Helper()
	var b errorBody
	if err := json.Unmarshal(a.Body, &b); err != nil || a.Status != status || b.Code != status {
		t.Errorf("got %v (%s), want %d with a JSON body", a, a.Header.Get("Content-Type"), status)
		return
	}
	for _, w := range words {
		if !strings.Contains(b.Message, w) {
			t.Errorf("message %q does not mention %q", b.Message, w)
		}
	}
}

// The answers to a first request that cannot be served say why.
func TestFirstRequestAnswers(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "open", 2)
	shared.Pool(t, ns, "closed", 1, stack.WithAccess(""))
	shared.Pool(t, ns, "keyed", 3, stack.WithAccess(v1alpha1.AccessAPIKey))

	t.Run("no sandbox named", func(t *testing.T) {
		a := send(t, nil, byHost(t, "GET", "localhost", "/", nil))
		wantError(t, a, 404, "X-Sandbox-Id", "/sandboxes/", "<port>-<ID>")
	})
	t.Run("unknown pool", func(t *testing.T) {
		a := shared.Do(t, nil, stack.Request{ID: "fr-unknown", Pool: ns + "/nowhere"})
		wantError(t, a, 401, "X-Sandbox-Api-Key")
	})
	t.Run("pool forbids", func(t *testing.T) {
		a := shared.Do(t, nil, stack.Request{ID: "fr-closed", Pool: ns + "/closed"})
		wantError(t, a, 401, "X-Sandbox-Api-Key")
	})
	t.Run("key missing", func(t *testing.T) {
		a := shared.Do(t, nil, stack.Request{ID: "fr-nokey", Pool: ns + "/keyed"})
		wantError(t, a, 401, "X-Sandbox-Api-Key")
	})
	t.Run("key wrong", func(t *testing.T) {
		key := "e2b_" + strings.Repeat("0", 40)
		a := shared.Do(t, nil, stack.Request{ID: "fr-badkey", Pool: ns + "/keyed", Header: map[string]string{"X-Sandbox-Api-Key": key}})
		wantError(t, a, 401)
		if strings.Contains(string(a.Body), key) {
			t.Error("the answer repeats the key")
		}
	})
	t.Run("key of another namespace", func(t *testing.T) {
		a := shared.Do(t, nil, stack.Request{ID: "fr-otherkey", Pool: ns + "/keyed", Header: map[string]string{"X-Sandbox-Api-Key": shared.Up.APIKey}})
		if a.Echo != nil {
			t.Errorf("a key of another namespace claimed a pod: %v", a)
		}
	})
	t.Run("key of the namespace", func(t *testing.T) {
		out, err := shared.Run(t.Context(), "apikey", "create", "--team", "e2e", "--namespace", ns)
		if err != nil {
			t.Fatalf("apikey create: %v\n%s", err, out)
		}
		key := findKey(t, out)
		shared.Eventually(t, 10*time.Second, "the key to be known", func() (bool, string) {
			a := shared.Do(t, nil, stack.Request{ID: "fr-key", Pool: ns + "/keyed", Header: map[string]string{"X-Sandbox-Api-Key": key}})
			if a.Echo == nil {
				return false, a.String()
			}
			for h, vs := range a.Echo.Headers {
				if strings.EqualFold(h, "X-Sandbox-Api-Key") || strings.Contains(strings.Join(vs, " "), key) {
					t.Errorf("the pod saw header %s", h)
				}
			}
			return true, ""
		})
		wantError(t, shared.Do(t, nil, stack.Request{ID: "fr-key"}), 401, "X-Sandbox-Api-Key") // it runs, and asks for the key
		wantError(t, shared.Do(t, nil, stack.Request{ID: "fr-closed", Pool: ns + "/closed", Header: map[string]string{"X-Sandbox-Api-Key": key}}), 403, "closed")
		wantError(t, shared.Do(t, nil, stack.Request{ID: "fr-unknown", Pool: ns + "/nowhere", Header: map[string]string{"X-Sandbox-Api-Key": key}}), 404, ns+"/nowhere")
	})
	t.Run("headers disagree", func(t *testing.T) {
		a := shared.Do(t, nil, stack.Request{ID: "fr-a", Pool: ns + "/open", Header: map[string]string{"E2b-Sandbox-Id": "fr-b", "E2b-Sandbox-Port": "8000"}})
		wantError(t, a, 400)
	})
	t.Run("generated form", func(t *testing.T) {
		a := shared.Do(t, nil, stack.Request{ID: "i0123456789abcdefghij", Pool: ns + "/open"})
		wantError(t, a, 502, "not found")
	})
	t.Run("another pool", func(t *testing.T) {
		shared.Touch(t, "fr-owned", ns+"/open")
		a := shared.Do(t, nil, stack.Request{ID: "fr-owned", Pool: "default/echo"})
		wantError(t, a, 502, "not found")
	})
	for _, id := range []string{"fr-unknown", "fr-closed", "fr-nokey", "fr-badkey", "fr-otherkey", "fr-a", "fr-b", "i0123456789abcdefghij"} {
		if _, found := shared.Sandbox(t, id); found {
			t.Errorf("a refused first request left sandbox %s behind", id)
		}
	}
}

// A browser gets HTML, an API client JSON.
func TestBrowserAnswers(t *testing.T) {
	chrome := map[string]string{"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/140 Safari/537.36", "Accept": "text/html,*/*"}
	a := shared.Do(t, nil, stack.Request{ID: "i0123456789abcdefghij", Header: chrome})
	if a.Status != 502 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || !strings.HasPrefix(string(a.Body), "<html") {
		t.Errorf("a browser got %s: %v", a.Header.Get("Content-Type"), a)
	}
	shared.Touch(t, "browser", "")
	a = shared.Do(t, nil, stack.Request{ID: "browser", Port: "8001", Header: chrome})
	if a.Status != 502 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		t.Errorf("a browser got for a closed port %s: %v", a.Header.Get("Content-Type"), a)
	}
	a = shared.Do(t, nil, stack.Request{ID: "browser", Port: "8001"})
	wantError(t, a, 502, "port is not open")
	var body struct {
		SandboxID string `json:"sandboxId"`
		Port      int    `json:"port"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil || body.SandboxID != "browser" || body.Port != 8001 {
		t.Errorf("closed port: %v (%v)", a, err)
	}
}

func findKey(t *testing.T, out string) string {
	t.Helper()
	for _, f := range strings.Fields(out) {
		if strings.HasPrefix(f, "e2b_") {
			return f
		}
	}
	t.Fatal("no key in the output of apikey create")
	return ""
}

// An error names its request as the client did, and a line of the gateway's log has that ID,
// whether Envoy, ExtProc or the REST API answered.
func TestErrorsAreFoundInTheLog(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "open", 1)
	shared.Touch(t, "rid-closed", ns+"/open")
	for name, r := range map[string]*http.Request{
		"rid-envoy":   byHost(t, "GET", "9-rid-closed.localhost", "/", nil),
		"rid-extproc": byHost(t, "GET", "localhost", "/", nil),
		"rid-rest":    byHost(t, "GET", "localhost", "/templates/none/builds/none/status", nil),
	} {
		r.Header.Set("X-Request-ID", name)
		a := send(t, nil, r)
		if got := a.Header.Get("X-Request-ID"); a.Status < 400 || got != name {
			t.Errorf("%s: %v has the ID %q", name, a, got)
		}
		shared.Eventually(t, 20*time.Second, "the line of "+name, func() (bool, string) {
			return strings.Contains(shared.Logs(1<<20), name), "it is not there"
		})
	}
	r := byHost(t, "GET", "9-rid-closed.localhost", "/", nil)
	r.Header.Set("X-Request-ID", strings.Repeat("x", 129))
	if got := send(t, nil, r).Header.Get("X-Request-ID"); got == "" || strings.Contains(got, "x") {
		t.Errorf("a long ID is answered by %q", got)
	}
}
