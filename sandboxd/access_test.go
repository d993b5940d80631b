package sandboxd

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sign is the SDKs' signature, written down again.
func sign(path, operation, user, token, expiration string) string {
	text := strings.Join([]string{path, operation, user, token}, ":")
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "=")
}

func TestBeforeInit(t *testing.T) {
	g := newGateway("pod-1")
	a := newAgent(t, g.options(Options{}))
	a.want(204, "", "GET", "/health", "")
	for _, path := range []string{"/envs", "/metrics", "/files?path=/etc/passwd"} {
		a.want(401, "not initialised", "GET", path, "")
	}
	a.want(401, "not initialised", "POST", "/process.Process/List", "{}", "Content-Type", "application/json")
	a.want(401, "control plane", "POST", "/init", `{"accessToken":"evil"}`)
	g.init(a, 400, "invalid body", `{`)
	g.init(a, 400, "nobody-here", `{"defaultUser":"nobody-here"}`)
	a.want(401, "not initialised", "GET", "/envs", "")
	// Without a token in /init everything is open after it.
	g.init(a, 204, "", "")
	a.want(200, "{}", "GET", "/envs", "")
}

func TestToken(t *testing.T) {
	g := newGateway("pod-1")
	a := newAgent(t, g.options(Options{}))
	claim := `{"accessToken":"tok","envVars":{"A":"1"},"timestamp":"2026-01-01T00:00:00Z"}`
	g.init(a, 204, "", claim)
	g.init(a, 204, "", claim)
	g.init(a, 409, "already", `{"accessToken":"other"}`)
	g.init(a, 409, "already", `{"accessToken":"tok","envVars":{"A":"2"}}`)
	a.want(200, `{"A":"1"}`, "GET", "/envs", "", "X-Access-Token", "tok")
	for _, token := range []string{"", "to", "tok2", "other"} {
		for _, path := range []string{"/envs", "/metrics", "/no-such-path", "/files/compose"} {
			a.want(401, "unauthorized access", "GET", path, "", "X-Access-Token", token)
		}
		a.want(401, "unauthorized access", "POST", "/process.Process/List", "{}", "Content-Type", "application/json", "X-Access-Token", token)
		a.want(401, "unauthorized access", "POST", "/files/compose", "{}", "X-Access-Token", token)
	}
	a.want(204, "", "GET", "/health", "")
	a.want(501, "does not implement", "POST", "/collapse", "", "X-Access-Token", "tok")
}

func TestSignatures(t *testing.T) {
	a := newAgent(t, Options{})
	a.want(204, "", "POST", "/init", `{"accessToken":"tok"}`)
	path := t.TempDir() + "/f ü"
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := "" // the default user
	future, past := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10), strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)
	for _, c := range []struct {
		name, method, signature, expiration string
		status                              int
		refusal                             string
	}{
		{"read", "GET", sign(path, "read", own, "tok", ""), "", 200, ""},
		{"read in time", "GET", sign(path, "read", own, "tok", future), future, 200, ""},
		{"read too late", "GET", sign(path, "read", own, "tok", past), past, 401, "signature is already expired"},
		{"expiration taken away", "GET", sign(path, "read", own, "tok", past), "", 401, "invalid signature"},
		{"expiration moved", "GET", sign(path, "read", own, "tok", past), future, 401, "invalid signature"},
		{"expiration of no number", "GET", sign(path, "read", own, "tok", "soon"), "soon", 401, "invalid signature expiration"},
		{"other path", "GET", sign(path+"x", "read", own, "tok", ""), "", 401, "invalid signature"},
		{"other user", "GET", sign(path, "read", "root", "tok", ""), "", 401, "invalid signature"},
		{"other token", "GET", sign(path, "read", own, "tok2", ""), "", 401, "invalid signature"},
		{"none", "GET", "", "", 401, "missing signature query parameter"},
		{"write to read", "GET", sign(path, "write", own, "tok", ""), "", 401, "invalid signature"},
		{"read to write", "POST", sign(path, "read", own, "tok", ""), "", 401, "invalid signature"},
		{"write", "POST", sign(path, "write", own, "tok", ""), "", 200, ""},
	} {
		query := url.Values{"path": {path}}
		if c.signature != "" {
			query.Set("signature", c.signature)
		}
		if c.expiration != "" {
			query.Set("signature_expiration", c.expiration)
		}
		res, body := a.do(c.method, "/files?"+query.Encode(), "text", "Content-Type", octets)
		if res.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, res.StatusCode, body, c.status)
		}
		if want := fmt.Sprintf(`{"code":401,"message":%q}`, c.refusal); c.status == 401 && strings.TrimSpace(body) != want {
			t.Errorf("%s: %s, want %s", c.name, body, want)
		}
	}
	a.want(200, "text", "GET", filesURL(path), "", "X-Access-Token", "tok")
	a.want(401, `"access token present in header but does not match"`, "GET", filesURL(path)+"&signature="+url.QueryEscape(sign(path, "read", "", "tok", "")), "", "X-Access-Token", "wrong")
}

func TestCORS(t *testing.T) {
	a := newAgent(t, newGateway("pod-1").options(Options{}))
	res, _ := a.do("OPTIONS", "/process.Process/Start", "", "Origin", "https://example.com", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-access-token,keepalive-ping-interval")
	h := res.Header
	if res.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Max-Age") != "7200" ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "keepalive-ping-interval") || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("%d %v", res.StatusCode, h)
	}
	if res, _ := a.do("GET", "/envs", "", "Origin", "https://example.com"); res.StatusCode != 401 || res.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a refusal that a page cannot read: %v", res.Header)
	}
}

func TestMetrics(t *testing.T) {
	a := newAgent(t, Options{})
	_, body := a.do("GET", "/metrics", "")
	var m map[string]float64
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ts", "cpu_count", "mem_total", "mem_used", "disk_total", "disk_used"} {
		if m[key] <= 0 {
			t.Errorf("%s is %v", key, m[key])
		}
	}
}
