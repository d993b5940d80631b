package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// Args returns the command line that runs a configuration file with that many
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

// ErrGone says that no Envoy listens on its admin socket.
var ErrGone = errors.New("no envoy runs here")

// adminTimeout bounds one question: Envoy's main thread, which answers, does
// nothing else that takes long.
const adminTimeout = 5 * time.Second

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

// SandboxLoad is what Envoy has of requests for sandboxes.
type SandboxLoad struct {
	// Active have a connection to their pod, Pending wait for one.
	Active, Pending int
	// Begun counts since Envoy's start the tries that got a connection, or none: refused, given
	// up, or over a limit. Retried counts how many of them were followed by another try.
	Begun, Retried int
}

// LoadOfSandboxes asks for the SandboxLoad. It costs Envoy little.
func (a Admin) LoadOfSandboxes(ctx context.Context) (SandboxLoad, error) {
	const of = "cluster." + SandboxCluster + ".upstream_rq_"
	n, err := a.stats(ctx, of+"active", of+"pending_active", of+"retry",
		of+"total", of+"pending_failure_eject", of+"cancelled", of+"pending_overflow")
	if err != nil {
		return SandboxLoad{}, err
	}
	return SandboxLoad{Active: n[0], Pending: n[1], Retried: n[2], Begun: n[3] + n[4] + n[5] + n[6]}, nil
}

// Metrics returns Envoy's own statistics in the text form of Prometheus.
func (a Admin) Metrics(ctx context.Context) (string, error) {
	return a.do(ctx, http.MethodGet, "/stats/prometheus")
}

// Quit ends Envoy with all that is open. It returns nil once no Envoy listens on the
// admin socket any more, and an error if that cannot be said.
func (a Admin) Quit(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodPost, "/quitquitquit")
	for {
		// An answer may be lost with the Envoy that is ending, so what counts is this.
		gone, goneErr := a.Gone(ctx)
		switch {
		case gone:
			return nil
		case goneErr != nil:
			return errors.Join(err, goneErr)
		case !backoff.Sleep(ctx, lookEvery):
			return errors.Join(err, fmt.Errorf("envoy still runs: %w", ctx.Err()))
		}
	}
}

// Gone reports whether no Envoy listens on the admin socket. Only without an error it
// is known.
func (a Admin) Gone(ctx context.Context) (bool, error) {
	c, err := a.dial(ctx)
	if errors.Is(err, ErrGone) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for envoy: %w", err)
	}
	_ = c.Close()
	return false, nil
}

func (a Admin) dial(ctx context.Context) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", a.Socket)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return c, err
}

// Version returns the version of the Envoy that runs, like 1.40.0.
func (a Admin) Version(ctx context.Context) (string, error) {
	info, err := a.info(ctx)
	if err != nil {
		return "", err
	}
	m := versionPattern.FindStringSubmatch(info.Version)
	if m == nil {
		return "", fmt.Errorf("envoy does not say its version: %q", info.Version)
	}
	return m[1] + "." + m[2] + "." + m[3], nil
}

// serverInfo is what is read of /server_info.
type serverInfo struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Options struct {
		Concurrency int `json:"concurrency"`
	} `json:"command_line_options"`
}

func (a Admin) info(ctx context.Context) (info serverInfo, err error) {
	return info, a.decode(ctx, "/server_info", &info)
}

func (a Admin) decode(ctx context.Context, path string, into any) error {
	out, err := a.do(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("ask envoy %s: %w", path, err)
	}
	return nil
}

func (a Admin) do(ctx context.Context, method, path string) (string, error) {
	client := http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return a.dial(ctx) },
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
