package activation

import (
	"context"
	"errors"

	"github.com/sandlane/sandlane/routecache"
)

// Known is what a gateway knows from its own watches of a sandbox whose pod runs:
// enough to make the pod ready and to route to it while the API server is away, and
// for a gateway that has just started to meet all its sandboxes without a read each.
type Known struct {
	// Namespace, Env, Pool and Team are the sandbox's.
	Namespace, Env, Pool, Team string
	// Route is new, and has no Stamp yet.
	Route *routecache.Route
	// Ready is like activation's Ready, by what is known. What it refuses with is not
	// the last word: the sandbox is read then, and Options.Ready judges.
	Ready func(context.Context) error
}

// finishKnown finishes the flight by what this gateway knows, if it knows a pod that
// runs the sandbox; done is false if the sandbox must be read. What is known may be
// old: as for every route, the cache says whether it still stands, before each try
// and at the end.
func (f *flight) finishKnown() (done bool, err error) {
	if f.New || f.a.o.Known == nil {
		return false, nil
	}
	token := f.a.o.Cache.Begin(f.ID)
	k := f.a.o.Known(f.ID)
	if k == nil || k.Namespace != f.Namespace || k.Env != f.Env || f.Env == "" && k.Pool != f.Pool || k.Team != f.Team {
		return false, nil
	}
	f.runs()
	k.Route.Stamp = f.a.o.Stamp(f.ID, k.Route.ClaimID)
	err = f.makeReady(token, k.Route, k.Ready)
	switch {
	case err == nil:
		f.a.o.Cache.Put(token, k.Route)
		return true, nil
	case f.ctx.Err() != nil:
		return true, err
	case errors.Is(err, ErrUnusable), errors.Is(err, ErrNotReady):
		f.distrusts = true
	}
	return false, nil
}
