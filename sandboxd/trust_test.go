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
