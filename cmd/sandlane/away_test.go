package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/test/kubetest"
)

// A controller and a gateway that start while the API server is away stay and
// wait for it: a supervisor would wait longer and longer before each restart. They end
// when they are told to.
func TestStartWithoutAnAPIServer(t *testing.T) {
	t.Parallel()                         // it waits more than it works
	dir, err := os.MkdirTemp("", "away") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],
"clusters":[{"name":"c","cluster":{"server":"http://` + freeAddress(t) + `"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		path string
		want int
	}{
		"controller":                 {[]string{"controller", "--leader-elect=false"}, "/healthz", http.StatusOK},
		"its readiness":              {[]string{"controller", "--leader-elect=false"}, "/readyz", http.StatusServiceUnavailable},
		"one of several controllers": {[]string{"controller"}, "/healthz", http.StatusOK},
		"gateway":                    {[]string{"gateway", "--name", "g", "--run-dir", filepath.Join(dir, "run")}, "/readyz", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := freeAddress(t)
			c := startChild(t, append(tc.args, "--kubeconfig", kubeconfig, "--metrics-address", address)...)
			// It answers for longer than any of its first tries takes.
			answers := 0
			kubetest.Eventually(t, "fifty answers", func() error {
				if err := c.running(); err != nil {
					t.Fatal(err)
				}
				code, _, err := fetch("http://" + address + tc.path)
				if err != nil || code != tc.want {
					return fmt.Errorf("%d: %w", code, err)
				}
				if answers++; answers < 50 {
					return fmt.Errorf("only %d", answers)
				}
				return nil
			})
			c.stop(t, syscall.SIGTERM)
		})
	}
}
