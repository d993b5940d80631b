package gateway

import (
	"context"

	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
)

// resolver adapts the index and its live reads to extproc.Resolver.
type resolver struct {
	index *index.Index
	live  *index.Live
	ready *sandboxdclient.Readiness
	own   corrections
}

// corrections correct the index's answers by what this gateway has written.
type corrections interface {
	Correct(a routing.Answer) routing.Answer
}

// Lookup implements extproc.Resolver.
func (r *resolver) Lookup(id string) routing.Answer {
	return r.reachable(id, r.own.Correct(r.index.Resolve(id)))
}

// Resolve implements extproc.Resolver.
func (r *resolver) Resolve(ctx context.Context, id, caller string) (routing.Answer, error) {
	a, err := r.live.ResolveFor(ctx, caller, id)
	return r.reachable(id, a), err
}

// reachable returns the answer with a running pod whose sandboxd has yet to be initialised as
// starting: following its activation initialises it.
func (r *resolver) reachable(id string, a routing.Answer) routing.Answer {
	if a.State == routing.Running && r.ready.Pending(id, a.ClaimID, a.Sandboxd) {
		a.State, a.Route = routing.Starting, nil
	}
	return a
}
