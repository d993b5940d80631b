package daemon

import (
	"context"
	"net/http"
	"sync/atomic"
)

// Health answers the probes of a controller, on the address of its metrics.
//
//	/healthz  200: the process lives. It is there before the API server is
//	/readyz   200 once the caches were filled: it works, or waits to lead. 503 before
//
// Readiness does not go back: a controller whose API server is away goes on by
// itself, and no Service leads to it.
type Health struct{ filled atomic.Bool }

// Start is called by the manager when the caches are filled.
func (h *Health) Start(context.Context) error {
	h.filled.Store(true)
	return nil
}

// NeedLeaderElection is false: one that waits to lead is ready as well.
func (h *Health) NeedLeaderElection() bool { return false }

// Handlers are what the metrics address serves besides metrics. logLevel is from
// LevelHandler.
func (h *Health) Handlers(logLevel http.Handler) map[string]http.Handler {
	return map[string]http.Handler{
		logLevelPath: logLevel,
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
