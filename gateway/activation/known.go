package activation

import (
	"context"
	"errors"

	"github.com/sandlane/sandlane/routing"
)

// finishKnown finishes the activation without a read, if this gateway knows a pod that runs
// the sandbox; done is false if the sandbox must be read, as one that is to be resumed must:
// the pod that is known of it is that of before its pause. The watches may be late: as for
// every route, the cache refuses the known one if it may be outdated, before each try and
// at the end.
//
// What a gateway knows from its own watches of a sandbox whose pod runs (Options.Known) is
// enough to make the pod ready and to route to it while the API server does not answer, and
// spares a gateway that has just started one read for each sandbox. It counts for requests that
// were authorised for that sandbox alone; after a refusal the activation reads.
//
// Gateway and controller stay while there is no API server, since a process that ends is
// restarted after ever longer pauses; a first request waits as long as for a pod, then gets 503.
func (act *activation) finishKnown() (done bool, err error) {
	if act.New || act.Resume.UID != "" || act.a.o.Known == nil {
		return false, nil
	}
	token := act.a.o.Cache.Begin(act.ID)
	k := act.a.o.Known(act.ID)
	if k.State != routing.Running || k.Namespace != act.Namespace || k.Env != act.Env || act.Env == "" && k.Pool != act.Pool || k.Team != act.Team {
		return false, nil
	}
	act.noteStarted()
	k.Route.Use = act.a.o.ClaimUse(act.ID, k.Route.ClaimID)
	err = act.makeReady(token, k.Route, func(ctx context.Context) error { return act.a.o.ReadyKnown(ctx, act.ID, k) })
	switch {
	case err == nil:
		act.a.o.Cache.Put(token, k.Route)
		return true, nil
	case act.ctx.Err() != nil:
		return true, err
	case errors.Is(err, routing.ErrUnusable), errors.Is(err, ErrNotReady):
		act.knownFailed = true
	}
	return false, nil
}
