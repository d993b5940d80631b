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
	// Ready makes the pod ready by what is known. Its refusal is not final: the sandbox
	// is read then, and Options.Ready judges.
	Ready func(context.Context) error
}

// finishKnown finishes the activation by what this gateway knows, if it knows a pod that
// runs the sandbox; done is false if the sandbox must be read. What is known may be
// old: as for every route, the cache says whether it still stands, before each try
// and at the end.
func (act *activation) finishKnown() (done bool, err error) {
	if act.New || act.a.o.Known == nil {
		return false, nil
	}
	token := act.a.o.Cache.Begin(act.ID)
	k := act.a.o.Known(act.ID)
	if k == nil || k.Namespace != act.Namespace || k.Env != act.Env || act.Env == "" && k.Pool != act.Pool || k.Team != act.Team {
		return false, nil
	}
	act.noteStarted()
	k.Route.Stamp = act.a.o.Stamp(act.ID, k.Route.ClaimID)
	err = act.makeReady(token, k.Route, k.Ready)
	switch {
	case err == nil:
		act.a.o.Cache.Put(token, k.Route)
		return true, nil
	case act.ctx.Err() != nil:
		return true, err
	case errors.Is(err, ErrUnusable), errors.Is(err, ErrNotReady):
		act.distrusts = true
	}
	return false, nil
}
