package restapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// timeouts are fields of the Server so that tests need not wait for them.
type timeouts struct {
	header, body, write, idle time.Duration
	// finish is what requests get to end by themselves once Serve shall stop,
	// abort what they get after their contexts are cancelled.
	finish, abort time.Duration
}

var defaultTimeouts = timeouts{
	header: 5 * time.Second,
	body:   15 * time.Second,
	// A create has answered by then, and a client that does not read its answer is cut off.
	write:  createDeadline + 25*time.Second,
	idle:   2 * time.Minute,
	finish: 10 * time.Second,
	abort:  5 * time.Second,
}

// Serve answers on l, which it closes, until ctx ends. It then takes no more
// connections and lets requests end; those that do not are cancelled, so that a
// create undoes what it made. It returns nil when it was stopped by ctx.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           s.Handler(),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: s.header,
		// Until the body is here, also where no handler reads it: net/http then reads
		// it before it sends the answer. It takes the deadline off the connection at
		// the body's end, so that it does not cancel a create that waits for a pod.
		ReadTimeout:    s.body,
		WriteTimeout:   s.write,
		IdleTimeout:    s.idle,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the REST API: %w", err)
	case <-ctx.Done():
	}
	if shutdown(srv, s.finish) != nil {
		cancel()
		if err := shutdown(srv, s.abort); err != nil {
			s.o.Log.Warn("requests of the REST API did not end", "err", err)
			_ = srv.Close()
		}
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the REST API: %w", err)
	}
	return nil
}

func shutdown(srv *http.Server, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return srv.Shutdown(ctx)
}
