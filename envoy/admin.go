package envoy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Args returns the command line that runs a configuration file with so many
// worker threads.
func Args(configFile string, workers int) []string {
	return []string{
		"--config-path", configFile,
		"--concurrency", strconv.Itoa(max(workers, 1)),
		"--disable-hot-restart", // several Envoys on one machine share nothing
		"--log-level", "warn",
		"--drain-time-s", strconv.Itoa(int(drainTime.Seconds())),
	}
}

// Admin speaks to a running Envoy over its admin socket. It keeps no
// connection; safe for concurrent use.
type Admin struct {
	// Socket is the path of the unix socket.
	Socket string
}

// Ready returns nil once Envoy serves.
func (a Admin) Ready(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodGet, "/ready")
	return err
}

// Clusters returns the text of /clusters.
func (a Admin) Clusters(ctx context.Context) (string, error) {
	return a.do(ctx, http.MethodGet, "/clusters")
}

// Drain tells clients to go elsewhere, refuses new connections, and returns
// when no request is open any more or when ctx ends, whichever is first; that
// requests were still open is no error.
func (a Admin) Drain(ctx context.Context) error {
	for _, path := range []string{"/healthcheck/fail", "/drain_listeners?graceful&skip_exit"} {
		if _, err := a.do(ctx, http.MethodPost, path); err != nil {
			return err
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		open, err := a.openRequests(ctx)
		if err == nil && open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const openRequestsStat = "http.main.downstream_rq_active"

func (a Admin) openRequests(ctx context.Context) (int, error) {
	out, err := a.do(ctx, http.MethodGet, "/stats?filter=^"+strings.ReplaceAll(openRequestsStat, ".", `\.`)+"$")
	if err != nil {
		return 0, err
	}
	_, value, ok := strings.Cut(strings.TrimSpace(out), ": ")
	if !ok {
		return 0, fmt.Errorf("envoy does not say how many requests are open: %q", out)
	}
	return strconv.Atoi(value)
}

func (a Admin) do(ctx context.Context, method, path string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", a.Socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, nil)
	if err != nil {
		return "", fmt.Errorf("ask envoy %s: %w", path, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask envoy %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("ask envoy %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("envoy answers %s to %s: %s", resp.Status, path, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}
