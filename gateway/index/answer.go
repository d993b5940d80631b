package index

import (
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// Why a lagging stream is safe:
//
// One pure function, decide, turns a sandbox and a pod into a routing.Answer. Only a
// pod that names the sandbox and is named by it, at its routable address, running
// and not being deleted, gives a Route. Pods and sandboxes come by independent
// streams, each behind by a time of its own, so the pair may be of different
// ages. That is safe: a Route carries the resourceVersion of the pod record that
// it was made from, and the route cache refuses it if a fence is newer. The
// lagging sandbox stream can only make an answer late, never another pod's.

// decide makes the answer from a sandbox's record and that of the pod with its binding's
// UID. A record that is not there is nil.
func decide(id string, s *sandbox, p *pod) routing.Answer {
	if s == nil {
		return routing.Answer{State: routing.Unknown}
	}
	a := routing.Answer{
		UID: s.uid, Namespace: s.namespace.Value(), Env: s.env.Value(), Pool: s.pool.Value(), Team: s.team.Value(), Private: s.private, Unsecured: s.unsecured,
		Guarded: p != nil && p.sandboxd && !s.unsecured,
		ClaimID: s.claim, PodName: s.podName, PodUID: s.podUID, PauseOrder: int64(s.order), Resumes: s.resumes,
	}
	switch {
	case s.ended:
		a.State = routing.Ended
	case s.paused, s.restoring && s.claim == "":
		a.State, a.Guarded = routing.Paused, !s.unsecured // only what runs sandboxd is ever paused
	case s.claim == "":
		a.State = routing.NoPod
	case p == nil || !p.backs(id, s) || !p.routable():
		a.State = routing.Starting
	case s.restoring, !s.awake:
		a.State = routing.MaybeFrozen
	default:
		a.State, a.Sandboxd, a.InitKey = routing.Running, p.sandboxd, p.initKey.Value()
		a.Route = &routecache.Route{
			SandboxID: id, Pool: routecache.PoolOf(a.Namespace, a.Pool), ClaimID: s.claim, PodUID: p.uid,
			Addr: p.addr, PodRV: p.rv, Private: s.private, Guarded: a.Guarded,
		}
		if s.private || !v1alpha1.GeneratedID(id) {
			a.Route.TokenUID = &s.uid
		}
	}
	return a
}
