package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
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
	Correct(a index.Answer) index.Answer
}

// Lookup implements extproc.Resolver.
func (r *resolver) Lookup(id string) extproc.Resolution {
	return r.resolution(id, r.own.Correct(r.index.Resolve(id)))
}

// Resolve implements extproc.Resolver.
func (r *resolver) Resolve(ctx context.Context, id, caller string) (extproc.Resolution, error) {
	a, err := r.live.ResolveFor(ctx, caller, id)
	if errors.Is(err, index.ErrLimited) {
		err = fmt.Errorf("%w: %w", extproc.ErrLimited, err)
	}
	return r.resolution(id, a), err
}

var availabilities = map[index.State]extproc.Availability{
	index.Unknown:     extproc.IDUnknown,
	index.Ended:       extproc.IDEnded,
	index.NoPod:       extproc.IDNoPod,
	index.Starting:    extproc.IDStarting,
	index.Running:     extproc.IDReachable,
	index.Paused:      extproc.IDPaused,
	index.MaybeFrozen: extproc.IDStarting, // following its activation wakes it
}

// resolution translates an answer of the index. A running pod whose sandboxd has yet to
// be initialised counts as starting: following its activation initialises it.
func (r *resolver) resolution(id string, a index.Answer) extproc.Resolution {
	if a.State == index.Running && r.ready.Pending(id, a.ClaimID, a.Sandboxd) {
		a.State, a.Route = index.Starting, nil
	}
	return extproc.Resolution{
		Availability: availabilities[a.State], Route: a.Route,
		UID: a.UID, Namespace: a.Namespace, Env: a.Env, Pool: a.Pool, Team: a.Team, Private: a.Private, Guarded: a.Guarded, Resumes: a.Resumes,
	}
}
