// Package httpserver serves HTTP until a context ends, with deadlines for each part of a
// request. Package restapi calls Serve.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Timeouts bound the parts of a request.
type Timeouts struct {
	Header, Body, Write, Idle time.Duration
	// Finish is what requests get to end by themselves once Serve shall stop,
	// Abort what they get after their contexts are cancelled.
	Finish, Abort time.Duration
}

// Serve answers on l, which it closes, until ctx ends. It then takes no more
// connections and lets requests end; those that do not are cancelled, so that a
// create undoes what it made. It returns nil when it was stopped by ctx.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, t Timeouts, log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: t.Header,
		// Until the body is here, also where no handler reads it: net/http then reads
		// it before it sends the answer. It takes the deadline off the connection at
		// the body's end, so that it does not cancel a create that waits for a pod.
		ReadTimeout:    t.Body,
		WriteTimeout:   t.Write,
		IdleTimeout:    t.Idle,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	if shutdown(srv, t.Finish) != nil {
		cancel()
		if err := shutdown(srv, t.Abort); err != nil {
			log.Warn("requests did not end in time", "err", err)
			_ = srv.Close()
		}
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

func shutdown(srv *http.Server, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return srv.Shutdown(ctx)
}
