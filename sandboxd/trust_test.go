package sandboxd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/test/certs"
)

// Commands trust the authority that /init has, and one that it has later: a sandbox may get
// rules then. What /init says of a variable wins.
func TestCommandsTrustEgress(t *testing.T) {
	dir, image := t.TempDir(), t.TempDir()
	own, egress := certs.New(t).PEM(), certs.New(t).PEM()
	bundle := filepath.Join(image, "etc/ssl/certs/ca-certificates.crt")
	if err := os.MkdirAll(filepath.Dir(bundle), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bundle, own, 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, Options{RunDir: dir, image: image})
	a.want(204, "", "POST", "/init", `{"envVars":{"GIT_SSL_CAINFO":"mine"}}`)
	env := func() string {
		return a.start(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/usr/bin/env"}}).wait().stdout.String()
	}
	if text := env(); strings.Contains(text, "SSL_CERT_FILE") {
		t.Errorf("without an authority: %s", text)
	}
	body, err := json.Marshal(map[string]any{"envVars": map[string]string{"GIT_SSL_CAINFO": "mine"}, "caBundle": string(egress)})
	if err != nil {
		t.Fatal(err)
	}
	a.want(204, "", "POST", "/init", string(body))
	text := env()
	for _, line := range []string{"SSL_CERT_FILE=" + dir + "/authorities.pem", "NODE_EXTRA_CA_CERTS=" + dir + "/egress.pem", "GIT_SSL_CAINFO=mine"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in %s", line, text)
		}
	}
	if both, err := os.ReadFile(filepath.Join(dir, "authorities.pem")); err != nil || string(both) != string(own)+string(egress) {
		t.Errorf("%s, %v", both, err)
	}
	a.want(204, "", "POST", "/init", `{"envVars":{"GIT_SSL_CAINFO":"mine"},"caBundle":"no certificate"}`) // it has run, and goes on
}

// A sandbox that runs learns of an authority by PUT /init, as a gateway signs it for what it is.
func TestLateTrust(t *testing.T) {
	g, dir := newGateway("pod-1"), t.TempDir()
	a := newAgent(t, g.options(Options{RunDir: dir, image: t.TempDir()}))
	authority := string(certs.New(t).PEM())
	put := func(body string, headers []string) int {
		res, _ := a.do("PUT", "/init", body, headers...)
		return res.StatusCode
	}
	if status := put(authority, g.commandHeaders(a, "trust", "", authority)); status != 412 {
		t.Errorf("before /init: %d", status)
	}
	g.init(a, 204, "", `{}`)
	for what, headers := range map[string][]string{
		"nothing": nil, "another command": g.commandHeaders(a, "restore", "", authority), "another body": g.commandHeaders(a, "trust", "", "x"),
	} {
		if status := put(authority, headers); status != 401 {
			t.Errorf("signed for %s: %d", what, status)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "egress.pem")); err == nil {
		t.Error("it trusts what was refused")
	}
	if status := put(authority, g.commandHeaders(a, "trust", "", authority)); status != 204 {
		t.Errorf("signed: %d", status)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "egress.pem")); err != nil || string(text) != authority {
		t.Errorf("it trusts %q, %v", text, err)
	}
}
