package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
)

// health answers the probes of a controller, on the address of its metrics.
//
//	/healthz  200: the process lives. It is there before the API server is
//	/readyz   200 once the caches were filled: it works, or waits to lead. 503 before
//
// Readiness does not go back: a controller whose API server is away goes on by
// itself, and no Service leads to it.
type health struct{ filled atomic.Bool }

// Start is called by the manager when the caches are filled.
func (h *health) Start(context.Context) error {
	h.filled.Store(true)
	return nil
}

// NeedLeaderElection is false: one that waits to lead is ready as well.
func (h *health) NeedLeaderElection() bool { return false }

// handlers are what the metrics address serves besides metrics.
func (h *health) handlers(level *slog.LevelVar) map[string]http.Handler {
	return map[string]http.Handler{
		logLevelPath: logLevel{level},
		"/healthz":   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if !h.filled.Load() {
				http.Error(w, "not listed yet", http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte("ok\n"))
		}),
	}
}
