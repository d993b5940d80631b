package sandboxd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// gateway signs what it sends to /init for one pod.
type gateway struct {
	podUID  string
	private ed25519.PrivateKey
}

func newGateway(podUID string) *gateway {
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	return &gateway{podUID, private}
}

// options are those of a sandboxd in the gateway's pod.
func (g *gateway) options(o Options) Options {
	o.InitKey, o.PodUID = g.private.Public().(ed25519.PublicKey), g.podUID
	return o
}

// signature is that of an /init to a, written down again. Headers are pairs.
func (g *gateway) signature(a *agent, body string, headers ...string) string {
	a.t.Helper()
	_, answer := a.do("GET", "/init", "")
	var challenge struct{ Nonce string }
	if err := json.Unmarshal([]byte(answer), &challenge); err != nil || challenge.Nonce == "" {
		a.t.Fatalf("GET /init: %s: %v", answer, err)
	}
	named := map[string]string{}
	for i := 0; i < len(headers); i += 2 {
		named[headers[i]] = headers[i+1]
	}
	message := fmt.Sprintf("sandlane init 1\n%q\n%q\n%q\n%q\n%x\n", g.podUID, challenge.Nonce,
		named["Sandlane-Sandbox-Id"], named["Sandlane-Template-Id"], sha256.Sum256([]byte(body)))
	return base64.StdEncoding.EncodeToString(ed25519.Sign(g.private, []byte(message)))
}

// init sends a signed /init and checks the answer.
func (g *gateway) init(a *agent, status int, text, body string, headers ...string) {
	a.t.Helper()
	a.want(status, text, "POST", "/init", body, append(headers, "Sandlane-Init-Signature", g.signature(a, body, headers...))...)
}

// What was signed for one pod, one process, one body and one sandbox initialises no
// other, and nothing that a process in a pod can read makes such a signature.
func TestInitIsSigned(t *testing.T) {
	const body = `{"accessToken":"tok"}`
	ours := newGateway("pod-1")
	before := newAgent(t, ours.options(Options{}))
	a := newAgent(t, ours.options(Options{}))
	named := []string{"Sandlane-Sandbox-Id", "i0", "Sandlane-Template-Id", "base"}
	good := ours.signature(a, body, named...)
	refused := func(what, body, signature string, headers ...string) {
		t.Helper()
		res, answer := a.do("POST", "/init", body, append(headers, "Sandlane-Init-Signature", signature)...)
		if res.StatusCode != 401 {
			t.Errorf("%s: %d %s", what, res.StatusCode, answer)
		}
	}
	refused("no signature", body, "", named...)
	refused("no base64", body, "!", named...)
	refused("half of one", body, good[:40], named...)
	refused("another body", `{"accessToken":"evil"}`, good, named...)
	refused("another sandbox", body, good, "Sandlane-Sandbox-Id", "i1", "Sandlane-Template-Id", "base")
	refused("another template", body, good, "Sandlane-Sandbox-Id", "i0", "Sandlane-Template-Id", "x")
	refused("no names", body, good)
	refused("another key", body, newGateway("pod-1").signature(a, body, named...), named...)
	refused("for another pod", body, (&gateway{"pod-2", ours.private}).signature(a, body, named...), named...)
	refused("for the process before", body, ours.signature(before, body, named...), named...)
	a.want(401, "not initialised", "GET", "/envs", "")
	a.want(204, "", "POST", "/init", body, append(named, "Sandlane-Init-Signature", good)...)
	a.want(204, "", "POST", "/init", body, append(named, "Sandlane-Init-Signature", good)...) // repeated, it changes nothing
	a.want(200, "{}", "GET", "/envs", "", "X-Access-Token", "tok")
}

// The controller gives a pod the key and its UID; a process that got half of it does
// not start, and one that got nothing says what that means.
func TestInitKeyFromTheEnvironment(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	key := base64.StdEncoding.EncodeToString(newGateway("").private.Public().(ed25519.PublicKey))
	for _, c := range []struct {
		key, uid       string
		code, warnings int
	}{{"", "", 0, 1}, {key, "pod-1", 0, 0}, {key, "", 2, 0}, {"x", "pod-1", 2, 0}, {key[:20], "pod-1", 2, 0}} {
		t.Setenv(initKeyEnv, c.key)
		t.Setenv(podUIDEnv, c.uid)
		var out, errs bytes.Buffer
		code := Run(stopped, []string{"-address", "127.0.0.1:0"}, &out, &errs)
		if code != c.code || strings.Count(errs.String(), "warning: ") != c.warnings {
			t.Errorf("key %q, UID %q: %d, %s", c.key, c.uid, code, errs.String())
		}
	}
}
