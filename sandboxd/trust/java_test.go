package trust

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/certs"
)

// fetch is a Java program that prints what the URL answers.
const fetch = `public class Fetch { public static void main(String[] args) throws Exception {
	System.out.write(new java.net.URL(args[0]).openStream().readAllBytes());
	System.out.flush();
} }`

// A Java program trusts the authority and those of the image's bundle, also beside options of
// the image's own; without the variable it trusts neither.
func TestJava(t *testing.T) {
	java, err := exec.LookPath("java")
	if err != nil || exec.Command(java, "--list-modules").Run() != nil {
		t.Skip("this machine has no Java")
	}
	if modules, _ := exec.Command(java, "--list-modules").Output(); !strings.Contains(string(modules), "jdk.compiler") {
		t.Skip("this machine's Java cannot compile a program")
	}
	own, egress := certs.New(t), certs.New(t)
	s, _ := image(t, own.PEM())
	s.Java = "-Dmine=kept"
	if err := s.Add(egress.PEM()); err != nil {
		t.Fatal(err)
	}
	options := s.Env()[javaOptions]
	if !strings.HasPrefix(options, "-Dmine=kept -D") {
		t.Errorf("%s=%s", javaOptions, options)
	}
	program := filepath.Join(t.TempDir(), "Fetch.java")
	if err := os.WriteFile(program, []byte(fetch), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, by := range []*certs.Authority{own, egress} {
		pair, err := tls.X509KeyPair(by.Issue(t, certs.Leaf{Names: []string{"localhost"}, Usage: x509.ExtKeyUsageServerAuth}))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "trusted") }))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
		defer server.Close()
		for _, tc := range []struct{ options, want string }{{options, "trusted"}, {"", "PKIX path building failed"}} {
			cmd := exec.CommandContext(t.Context(), java, program, strings.Replace(server.URL, "127.0.0.1", "localhost", 1))
			cmd.Env = append(os.Environ(), javaOptions+"="+tc.options)
			if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), tc.want) {
				t.Errorf("%s=%q: %s", javaOptions, tc.options, out)
			}
		}
	}
}
