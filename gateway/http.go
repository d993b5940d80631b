package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandlane/sandlane/envoy"
)

// Paths of the metrics address.
const (
	metricsPath = "/metrics"
	// envoyMetricsPath serves the metrics of this gateway's Envoy.
	envoyMetricsPath = "/metrics/envoy"
	logLevelPath     = "/log-level"
)

// serveHTTP serves metrics and health until ctx ends. /healthz is 200 while the
// process lives; /readyz is 200 while it serves requests.
func (g *gateway) serveHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, promhttp.HandlerFor(g.reg, promhttp.HandlerOpts{Registry: g.reg}))
	mux.Handle("GET "+envoyMetricsPath, newEnvoyMetrics(g.drain.admin))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !g.extproc.Serving() {
			http.Error(w, "not serving", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	if g.o.LogLevel != nil {
		mux.Handle(logLevelPath, g.o.LogLevel)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(g.metrics); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// envoyMetrics serves Envoy's own statistics in the form of Prometheus. They are of
// listeners and clusters, never of a sandbox. Envoy's main thread writes them, which
// also answers the poller: so one scrape at a time.
type envoyMetrics struct {
	admin envoy.Admin
	turn  chan struct{} // room for one
}

func newEnvoyMetrics(admin envoy.Admin) http.Handler {
	return &envoyMetrics{admin: admin, turn: make(chan struct{}, 1)}
}

func (e *envoyMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-r.Context().Done():
		return
	}
	text, err := e.admin.Metrics(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(text))
}
