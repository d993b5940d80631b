package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandlane/sandlane/controlplane/e2b"
)

// apiServer serves the REST API on a listener, which it closes, until ctx ends and
// what it has begun is answered.
type apiServer interface {
	Serve(ctx context.Context, l net.Listener) error
}

// e2bParts are what the REST API's server needs.
type e2bParts struct {
	sandboxes  e2b.Sandboxes
	templates  e2b.Templates
	keys       e2b.Keys
	tokens     e2b.Tokens
	domain     string
	registerer prometheus.Registerer
	log        *slog.Logger
}

// newAPIServer stands in for e2b.NewServer until that is here: every request is
// 503.
func newAPIServer(e2bParts) (apiServer, error) { return noAPI{}, nil }

type noAPI struct{}

func (noAPI) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":503,"message":"The REST API is not served here yet"}`)
	})}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the REST API: %w", err)
	}
	return nil
}
