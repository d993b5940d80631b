package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sandlane/sandlane/local/supervise"
)

// Running is what an `up` says of itself.
type Running struct {
	PID       int                `json:"pid"`
	StartedAt time.Time          `json:"startedAt"`
	Gateways  []GatewayInfo      `json:"gateways"`
	Processes []supervise.Status `json:"processes"`
}

// control answers `sandlane status` on a unix socket in the run folder.
type control struct {
	server *http.Server
	done   chan struct{}
}

func (u *up) listen() (*control, error) {
	l, err := net.Listen("unix", u.controlSocket())
	if err != nil {
		return nil, fmt.Errorf("listen for `sandlane status`: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Running{
			PID: os.Getpid(), StartedAt: u.startedAt, Gateways: u.upFileNow().Gateways, Processes: u.group.Check(ctx),
		})
	})
	c := &control{server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		if err := c.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			u.o.Log.Error("the status socket failed", "err", err)
		}
	}()
	return c, nil
}

func (c *control) close() {
	_ = c.server.Close()
	<-c.done
}

// askRunning asks the `up` of a state folder about itself.
func (s state) askRunning(ctx context.Context) (Running, error) {
	var r Running
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.controlSocket())
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://up/status", nil)
	if err != nil {
		return r, fmt.Errorf("ask for the status: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return r, fmt.Errorf("ask for the status: %w", err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return r, fmt.Errorf("ask for the status: %w", err)
	}
	return r, nil
}
