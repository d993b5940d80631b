package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A controller and a gateway that start while the API server is away stay and
// wait for it: whoever starts them again would wait longer and longer. They end
// when they are told to.
func TestStartWithoutAnAPIServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "away") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
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
		"controller": {nil, "/metrics", http.StatusOK},
		"gateway":    {[]string{"--name", "g", "--run-dir", filepath.Join(dir, "run")}, "/readyz", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan int, 1)
			args := append([]string{name, "--kubeconfig", kubeconfig, "--metrics-address", address}, tc.args...)
			go func() { done <- Run(ctx, args, io.Discard, io.Discard) }()
			deadline, tick := time.After(20*time.Second), time.NewTicker(20*time.Millisecond)
			defer tick.Stop()
			// It answers for longer than any of its first tries takes.
			for answers := 0; answers < 50; {
				select {
				case code := <-done:
					t.Fatalf("it ended with %d", code)
				case <-deadline:
					t.Fatal("it does not serve")
				case <-tick.C:
				}
				if err := wantStatus("http://"+address+tc.path, tc.want); err == nil {
					answers++
				}
			}
			stop()
			select {
			case code := <-done:
				if code != 0 {
					t.Errorf("told to stop, it ended with %d", code)
				}
			case <-time.After(30 * time.Second):
				t.Error("told to stop, it does not end")
			}
		})
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func wantStatus(url string, want int) error {
	res, err := (&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != want {
		return fmt.Errorf("%s says %d", url, res.StatusCode)
	}
	return nil
}
