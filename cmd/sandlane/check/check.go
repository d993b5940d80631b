package check

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// settleTimeout is how long an address of a Service, and an end, may take until
	// all have heard of it.
	settleTimeout = 15 * time.Second
	settleEvery   = 200 * time.Millisecond
	// cleanTimeout bounds the end of a sandbox after a step that failed.
	cleanTimeout = 10 * time.Second
)

// Options of Run.
type Options struct {
	// Service is host:port of what clients reach gateways by.
	Service string
	// Gateways are host:port of each gateway's own listener; at least one.
	Gateways []string
	// TLS is how all of them are spoken to; nil is plain HTTP.
	TLS *tls.Config
	// Key is an API key. Without one nothing is checked that needs one.
	Key string
	// Template names what the REST API makes a sandbox of; its pods run sandboxd.
	// Empty makes none.
	Template string
	// First is checked if its Pool is set.
	First FirstRequest
	// Progress is called with one line for each check; nil: not called.
	Progress func(line string)

	settle time.Duration // tests shorten settleTimeout
}

// FirstRequest is a request that makes its sandbox.
type FirstRequest struct {
	// Pool is [namespace/]name of a pool that the key may use.
	Pool string
	// Port and Path of a server in its pods that answers GET with 200 to 399.
	Port int
	Path string
	// WebSocketPath is where the same port answers each message of a WebSocket with
	// that message. Empty opens none.
	WebSocketPath string
}

// Run returns nil if all was as it must be.
func Run(ctx context.Context, o Options) error {
	if len(o.Gateways) == 0 {
		return errors.New("no gateway is ready")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.settle == 0 {
		o.settle = settleTimeout
	}
	c := checker{Options: o, service: newDoor(o.Service, o.TLS)}
	defer c.service.close()
	for _, address := range o.Gateways {
		d := newDoor(address, o.TLS)
		defer d.close()
		c.gateways = append(c.gateways, d)
	}
	if err := c.refusals(ctx); err != nil {
		return err
	}
	if o.Key == "" {
		o.Progress("no API key was given: nothing is checked that needs one")
		return nil
	}
	if o.Template != "" {
		if err := c.sandbox(ctx); err != nil {
			return fmt.Errorf("a sandbox of the REST API: %w", err)
		}
	}
	if o.First.Pool != "" {
		if err := c.firstRequest(ctx); err != nil {
			return fmt.Errorf("a sandbox of a first request: %w", err)
		}
	}
	return nil
}

// checker is one run.
type checker struct {
	Options
	service  *door
	gateways []*door
}

// all are the doors to the installation.
func (c *checker) all() []*door { return append([]*door{c.service}, c.gateways...) }

// refusals checks that each gateway answers, and refuses a request without an API key.
func (c *checker) refusals(ctx context.Context) error {
	for _, d := range c.all() {
		if err := settle(ctx, c.settle, func() error {
			return d.want(ctx, http.StatusUnauthorized, http.MethodGet, "/sandboxes", nil, nil)
		}); err != nil {
			return fmt.Errorf("a request without an API key: %w", err)
		}
	}
	c.Progress(fmt.Sprintf("%d gateways, and their Service, answer and refuse requests without an API key", len(c.gateways)))
	return nil
}

// end ends a sandbox that was made with the key, and waits until no gateway reaches it.
func (c *checker) end(ctx context.Context, id string, request http.Header) error {
	if err := c.service.want(ctx, http.StatusNoContent, http.MethodDelete, "/sandboxes/"+id, http.Header{"X-Api-Key": {c.Key}}, nil); err != nil {
		return fmt.Errorf("end it: %w", err)
	}
	for _, d := range c.all() {
		if err := settle(ctx, c.settle, func() error { return d.want(ctx, http.StatusBadGateway, http.MethodGet, "/", request, nil) }); err != nil {
			return fmt.Errorf("a request to it after its end: %w", err)
		}
	}
	return nil
}

// clean ends a sandbox after a step that failed, if it was made.
func (c *checker) clean(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	status, text, err := c.service.ask(ctx, http.MethodDelete, "/sandboxes/"+id, http.Header{"X-Api-Key": {c.Key}}, nil)
	switch {
	case err != nil:
		c.Progress(fmt.Sprintf("sandbox %s may live on: %v", id, err))
	case status != http.StatusNoContent && status != http.StatusNotFound:
		c.Progress(fmt.Sprintf("sandbox %s may live on: its end is answered with %d: %s", id, status, start(text)))
	}
}

// newID is the ID of a sandbox of this check.
func newID() string { return "check-" + strings.ToLower(rand.Text()[:16]) }

// settle tries until f succeeds or the time is over, and returns its last error.
func settle(ctx context.Context, timeout time.Duration, f func() error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-deadline.C:
			return err
		case <-tick.C:
		}
	}
}
