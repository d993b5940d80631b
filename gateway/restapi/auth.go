package restapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/ratelimit"
	"github.com/sandlane/sandlane/routing"
)

// authenticate finds the owner of the request's API key and counts the request against
// the key's limit. The key itself is not passed on.
//
// A source that sends wrong keys gets 429 instead of 401 once its budget is gone.
// A valid key is let in even then: behind a load balancer many clients share one
// source, and one of them must not lock out the others. Guessing is no concern, a
// key has 160 random bits.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request, c *call) error {
	key := r.Header.Get("X-API-KEY")
	if key == "" {
		return s.badKey(r, c, "The API key is missing: send it in the header X-API-KEY.")
	}
	if !s.o.Serving() {
		return fmt.Errorf("verify an API key: %w", errKeysNotReady)
	}
	owner, err := s.o.Keys.Verify(r.Context(), key)
	switch {
	case errors.Is(err, routing.ErrBadKey):
		return s.badKey(r, c, "The API key is not valid.")
	case err != nil:
		return fmt.Errorf("verify an API key: %w", err)
	}
	c.owner = owner
	return s.count(w, c, 1)
}

// count counts n requests against the limit of the call's key.
func (s *Server) count(w http.ResponseWriter, c *call, n int) error {
	budget := s.keys.TakeN(c.owner.Name(), n)
	describeBudget(w.Header(), budget)
	if !budget.OK {
		c.quiet = true // it has changed nothing, and there can be any number
		return &refusal{status: http.StatusTooManyRequests, message: "Too many requests with this API key.", retryAfter: budget.Wait}
	}
	return nil
}

// KeyOf names the API key of the request that ctx comes from; empty if it comes from
// none, or from one whose key is not known.
func KeyOf(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.owner != (routing.KeyOwner{}) {
		return c.owner.Name()
	}
	return ""
}

func (s *Server) badKey(r *http.Request, c *call, message string) error {
	if budget := s.badKeys.Take(sourceOf(r)); !budget.OK {
		c.quiet = true
		return &refusal{status: http.StatusTooManyRequests, message: "Too many requests without a valid API key.", retryAfter: budget.Wait}
	}
	return refuse(http.StatusUnauthorized, message)
}

// describeBudget sets the headers that show a client its budget.
func describeBudget(h http.Header, b ratelimit.Budget) {
	h.Set("RateLimit-Limit", strconv.Itoa(b.Burst))
	h.Set("RateLimit-Remaining", strconv.Itoa(b.Left))
	h.Set("RateLimit-Reset", seconds(max(b.Full, time.Second)))
}

// sourceOf names where a request comes from: the connection's other end, or what
// Envoy saw as that, which it appends to X-Forwarded-For. Only Envoy reaches a
// unix socket, so what it appended is true; what stands before it is the client's
// own. An IPv6 source is its /64.
func sourceOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || host == "" {
		all := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
		host = strings.TrimSpace(all[strings.LastIndexByte(all, ',')+1:])
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return "" // all of these share one budget
	}
	if addr = addr.Unmap(); addr.Is6() {
		network, _ := addr.Prefix(64) // cannot fail for IPv6
		return network.String()
	}
	return addr.String()
}
