package claims

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/test/ports"
)

const (
	gateways        = 3
	connectPatience = 20 * time.Second
)

// fronts are gateways with their Envoys.
type fronts struct {
	urls     []string
	gateways []*suite.Gateway
	running  []*suite.Process // in the order in which they are stopped
}

func (f *fronts) stop() {
	for _, p := range f.running {
		p.Stop()
	}
}

// tries is how many pods the gateways have tried to claim so far, with success or
// without.
func (f *fronts) tries(ctx context.Context) (sum float64, err error) {
	for _, g := range f.gateways {
		all, err := g.Metric(ctx, "sandlane_schedule_claims_total", "")
		if err != nil {
			return 0, err
		}
		sum += all[""]
	}
	return sum, nil
}

func (b *bench) startFronts(ctx context.Context, name string, n int) (*fronts, error) {
	f := &fronts{}
	for i := range n {
		g, err := b.cluster.StartGateway(ctx, fmt.Sprintf("%s-%d-of-%d", name, i+1, n), nil)
		if err != nil {
			return f, err
		}
		f.gateways, f.running = append(f.gateways, g), append(f.running, g.Process)
		port, err := ports.Free()
		if err != nil {
			return f, err
		}
		bootstrap, err := envoy.Bootstrap(envoy.Options{RunDir: g.RunDir, NodeID: g.Name, Port: port})
		if err != nil {
			return f, err
		}
		config, err := envoy.JSON(bootstrap)
		if err != nil {
			return f, err
		}
		file := filepath.Join(g.RunDir, "envoy.json")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return f, fmt.Errorf("write Envoy's configuration: %w", err)
		}
		admin := envoy.Admin{Socket: filepath.Join(g.RunDir, envoy.AdminSocketName)}
		p, err := b.Start(ctx, "envoy-"+g.Name, nil, admin.Ready, b.Envoy, envoy.Args(file, 1)...)
		if err != nil {
			return f, err
		}
		f.running = append([]*suite.Process{p}, f.running...) // Envoy stops before its gateway
		f.urls = append(f.urls, "http://127.0.0.1:"+strconv.Itoa(port)+"/")
	}
	return f, suite.Place(ctx, f.gateways)
}

// client keeps its connections, so that connecting is not measured.
var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 400, DisableCompression: true}}

// get sends a request to a sandbox and returns the status.
func (b *bench) get(ctx context.Context, url, id string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Host = b.cluster.Host(id)
	return status(req)
}

// status sends a request and reads the whole answer, so that its connection can be
// used again.
func status(req *http.Request) (int, error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

// must sends a request to a sandbox; any answer but the sandbox's is an error.
func (b *bench) must(ctx context.Context, url, id string) error {
	status, err := b.get(ctx, url, id)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a request for %s is answered with %d", id, status)
	}
	return err
}

// connect opens n connections, spread over all Envoys, for the requests that follow. No
// request is answered before all connections are open, so that none is used twice.
func (f *fronts) connect(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	open, missing := make(chan struct{}), new(atomic.Int64)
	missing.Store(int64(n))
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if missing.Add(-1) == 0 {
			close(open)
		}
		select {
		case <-open:
		case <-ctx.Done():
		}
	}})
	_, err := together(ctx, n, func(ctx context.Context, i int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.urls[i%len(f.urls)]+"health", nil)
		if err != nil {
			return err
		}
		_, err = status(req)
		return err
	})
	if err != nil {
		return fmt.Errorf("open %d connections: %w", n, err)
	}
	return nil
}
