package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call is one request, and the message that it is received into (see codec). Only
// its handler's goroutine touches it.
type call struct {
	stream    extprocv3.ExternalProcessor_ProcessServer
	headers   Headers
	isHeaders bool // the message was request headers
	target    Target
	outcome   string // of a routing answer: where the route came from
	waiting   bool   // Envoy was told to wait longer
	held      string // the claim, if this request was held for its idle release
	heldIn    string // the namespace of that claim's sandbox
}

// Process answers one request: one Recv, one or two Sends, return. An error
// instead of an answer makes Envoy fail the request.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) (err error) {
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer func() {
		if v := recover(); v != nil {
			s.recovered(v)
			err = status.Error(codes.Internal, "internal error")
		}
		if err == nil {
			return
		}
		if stream.Context().Err() != nil {
			s.metrics.outcome(outcomeCanceled)
			return
		}
		s.metrics.outcome(outcomeFailed)
	}()
	c := &call{stream: stream, outcome: outcomeHit}
	err = stream.RecvMsg(c)
	if errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, "the stream ended before the request headers")
	}
	if err != nil {
		return err
	}
	if !c.isHeaders {
		return status.Error(codes.InvalidArgument, "the first message is not request headers")
	}
	if err := s.serve(c); err != nil {
		if stream.Context().Err() != nil { // the client left
			return status.FromContextError(stream.Context().Err()).Err()
		}
		var broken *sendError
		if errors.As(err, &broken) {
			return broken.err
		}
		return s.reject(c, err)
	}
	return nil
}

// serve answers with a route, or returns why it cannot. It returns nil only
// after it has sent the answer.
func (s *Server) serve(c *call) error {
	var err error
	if c.target, err = ParseTarget(&c.headers); err != nil {
		return err
	}
	if c.target.Port == sandboxdPort {
		if c.headers.Upgrade.Count > 0 {
			return errUpgrade
		}
		reserved, err := controlPath(c.target.Path)
		if err != nil {
			return err
		}
		if reserved != "" {
			return &rejection{
				reason: reasonControlPath, status: http.StatusNotFound, path: reserved,
				message: "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL",
			}
		}
	}
	if answered, err := s.fromCache(c); answered || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.stream.Context(), s.o.MaxWait)
	defer cancel()
	return s.miss(ctx, c)
}

// fromCache answers with the cached route, all inside one flight of the cache;
// answered is false on a miss. The invariants need this order: enter the flight,
// Get, look at the lease, touch the use, look for room in its namespace, look whether requests of
// the claim are held for an idle release, send the answer, leave the flight. A held request is a
// miss, with held set. One that finds no room is use too, since nothing else of that sandbox may
// be open.
func (s *Server) fromCache(c *call) (answered bool, err error) {
	flight := s.o.Cache.Enter()
	defer flight.Leave()
	r := s.o.Cache.Get(c.target.ID)
	if r == nil {
		return false, nil
	}
	pool := r.InPool()
	if err := s.admit(c, accessFacts{namespace: pool.Namespace, pool: pool.Name, private: r.Private, guarded: r.Guarded, tokenUID: r.TokenUID}); err != nil {
		return false, err
	}
	if !s.o.Lease.Held() {
		return false, errNoLease
	}
	if r.Use.Full() {
		return false, ErrOpenLimit
	}
	r.Use.Touch(s.o.Now())
	if !s.o.Room.Open(r) {
		return false, ErrNamespaceOpen
	}
	if r.Use.Holding() {
		s.o.Room.Unsent(r)
		c.held, c.heldIn = r.ClaimID, pool.Namespace
		return false, nil
	}
	if err := c.stream.SendMsg(routeAnswer(r, &c.target, &c.headers)); err != nil {
		s.o.Room.Unsent(r)
		return false, &sendError{err}
	}
	s.metrics.outcome(c.outcome)
	return true, nil
}

// reject answers with an error of E2B's form.
func (s *Server) reject(c *call, err error) error {
	if !s.o.Lease.Held() {
		err = errNoLease
	}
	r := rejectionOf(err)
	switch r.reason {
	case reasonInternal, reasonNotPermitted, reasonNotRestorable, reasonNoCapacity, reasonDeadline:
		r.cause = err
	}
	r.sandboxID = c.target.ID
	if err := c.stream.Send(immediateAnswer(r, wantsHTML(&c.headers))); err != nil {
		return err
	}
	s.metrics.rejected(r.reason)
	return nil
}

// raiseMessageTimeout raises the request's message timeout in Envoy, once per request, before the
// request waits for anything outside this process: for MaxWait at most.
func (s *Server) raiseMessageTimeout(c *call) error {
	if c.waiting {
		return nil
	}
	c.waiting = true
	if err := c.stream.Send(waitAnswer(s.o.MaxWait + WaitMargin)); err != nil {
		return &sendError{err}
	}
	return nil
}

func (s *Server) recovered(v any) {
	s.metrics.panics.Inc()
	s.logLimit.Do(func() {
		s.o.Log.Error("Recovered from a panic", slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
	})
}

// errNoLease stops every answer while the gateway holds no lease: it cannot know which
// claims have ended.
var errNoLease = errors.New("this gateway holds no lease")

// sendError is a broken stream: no answer can be sent.
type sendError struct{ err error }

func (e *sendError) Error() string { return "sending to Envoy: " + e.err.Error() }
