package envoy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// lookEvery is the pause between two looks at what is open.
	lookEvery = 50 * time.Millisecond
	// idleLinger is how long client connections without a request are left open
	// at the end of a drain: one that is in use meanwhile is closed by its next
	// answer, which no request can cross.
	idleLinger = 2 * time.Second
	// acceptTime is for connections whose handshake was under way when newcomers
	// began to be turned away, and for Envoy to take them.
	acceptTime = 250 * time.Millisecond
)

// Open is what clients have open at one Envoy.
type Open struct {
	// Requests are those not answered to their end, WebSockets included.
	Requests int
	// Connections are those of clients, with a request or without.
	Connections int
}

// Draining reports whether a drain was begun. Envoy knows no way back: such an
// Envoy must be ended.
func (a Admin) Draining(ctx context.Context) (bool, error) {
	info, err := a.info(ctx)
	return info.State == "DRAINING", err
}

// Drain sends clients away without failing a request, and returns what is left
// open when it is done or ctx ends. Only an error of Envoy's is an error; the
// drain has gone as far as it could all the same. Its steps:
//
//  1. Each answer from now on closes its connection (HTTP/2: GOAWAY). New
//     connections are still taken, for as long as delay: what spreads them
//     over gateways needs that time to notice.
//  2. New connections are turned away (see turnAway), and Envoy stops listening.
//  3. Requests end by themselves. When none is open, connections without one
//     are left for idleLinger.
//
// The caller ends Envoy then.
func (a Admin) Drain(ctx context.Context, delay time.Duration) (Open, error) {
	_, err := a.do(ctx, http.MethodPost, "/healthcheck/fail")
	if errors.Is(err, ErrGone) {
		return Open{}, err
	}
	if backoff.Sleep(ctx, delay) {
		err = errors.Join(err, a.stopListening(ctx))
	}
	left, waitErr := a.waitClosed(ctx)
	return left, errors.Join(err, waitErr)
}

// stopListening ends Envoy's listener. A listening socket takes connections that
// Envoy has not accepted yet, and closing it resets those, so no client may be
// connecting at that moment. If that cannot be had, a few requests may fail.
func (a Admin) stopListening(ctx context.Context) error {
	letIn, err := a.turnAway(ctx)
	defer letIn()
	if err != nil {
		err = fmt.Errorf("turn away new connections before the listener closes: %w", err)
	} else {
		backoff.Sleep(ctx, acceptTime)
	}
	if _, stopErr := a.do(ctx, http.MethodPost, "/drain_listeners"); stopErr != nil {
		return errors.Join(err, stopErr)
	}
	for {
		stopped, statErr := a.stats(ctx, "listener_manager.listener_stopped")
		if statErr == nil && stopped[0] > 0 || errors.Is(statErr, ErrGone) || !backoff.Sleep(ctx, lookEvery) {
			return err
		}
	}
}

// turnAway keeps new connections from Envoy's listener until letIn is called,
// which is never nil.
func (a Admin) turnAway(ctx context.Context) (letIn func(), err error) {
	letIn = func() {}
	info, err := a.info(ctx)
	if err != nil {
		return letIn, err
	}
	var list struct {
		Listeners []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    uint16 `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := a.decode(ctx, "/listeners?format=json", &list); err != nil {
		return letIn, err
	}
	for _, l := range list.Listeners {
		if l.Name != listenerName {
			continue
		}
		ip, err := netip.ParseAddr(l.Local.Socket.Address)
		if err != nil {
			return letIn, fmt.Errorf("envoy's listener: %w", err)
		}
		return turnAway(netip.AddrPortFrom(ip, l.Local.Socket.Port), info.Options.Concurrency)
	}
	return letIn, fmt.Errorf("envoy has no listener %q", listenerName)
}

// waitClosed returns when nothing is open that should be waited for.
func (a Admin) waitClosed(ctx context.Context) (last Open, err error) {
	var quiet time.Time // since when no request was seen open
	for {
		// Asked also when ctx has ended: what is left is to be told.
		now, err := a.open(context.WithoutCancel(ctx))
		switch {
		case errors.Is(err, ErrGone):
			return Open{}, err
		case err != nil: // asked again
		case now.Requests > 0:
			last, quiet = now, time.Time{}
		default:
			last = now
			if quiet.IsZero() {
				quiet = time.Now()
			}
			if now.Connections == 0 || time.Since(quiet) >= idleLinger {
				return now, nil
			}
		}
		if !backoff.Sleep(ctx, lookEvery) {
			return last, nil
		}
	}
}

func (a Admin) open(ctx context.Context) (Open, error) {
	// A connection that has not said anything yet is counted by the listener alone.
	n, err := a.stats(ctx, "http.main.downstream_rq_active", "http.main.downstream_cx_active", "listener."+listenerName+".downstream_pre_cx_active")
	return Open{Requests: n[0], Connections: n[1] + n[2]}, err
}

// stats returns the values of the named numbers, 0 for one that is not there.
func (a Admin) stats(ctx context.Context, names ...string) ([]int, error) {
	values := make([]int, len(names))
	filter := "^(" + strings.ReplaceAll(strings.Join(names, "|"), ".", `\.`) + ")$"
	out, err := a.do(ctx, http.MethodGet, "/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return values, err
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for i := range names {
			if names[i] != name {
				continue
			}
			if values[i], err = strconv.Atoi(value); err != nil {
				return values, fmt.Errorf("read envoy's %s: %w", name, err)
			}
		}
	}
	return values, nil
}
