package index

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
)

// Why a lagging stream is safe:
//
// One pure function, decide, turns a sandbox and a pod into an Answer. Only a
// pod that names the sandbox and is named by it, at its routable address, running
// and not being deleted, gives a Route. Pods and sandboxes come by independent
// streams, each behind by a time of its own, so the pair may be of different
// ages. That is safe: a Route carries the resourceVersion of the pod record that
// it was made from, and the route cache refuses it if a fence is newer. The
// lagging sandbox stream can only make an answer late, never another pod's.

// State says what this gateway's view shows of a sandbox: its record, and the pod of
// its binding.
type State int

const (
	// Unknown means: no such sandbox.
	Unknown State = iota
	// Ended means: the sandbox has ended, or is being deleted. It gets no pod any more.
	Ended
	// NoPod means: the sandbox exists and is bound to no pod.
	NoPod
	// Starting means: the sandbox is bound, and its pod does not answer for it: not yet
	// claimed, starting, at an address that is not routable, stopping, failed, finished,
	// gone, or claimed by another sandbox. Which of these it is only matters to a writer
	// (package activation), which reads live.
	Starting
	// Running means: the sandbox's pod answers.
	Running
	// Paused means: the sandbox is paused, or is resumed and has neither its files nor a
	// pod to restore them in. No request is routed to it.
	Paused
	// MaybeFrozen means: the sandbox was paused once, and this view does not show that its
	// processes run again. It is Running once its freezer was asked to let it run, or its
	// files were restored.
	MaybeFrozen
)

// String returns the state's name, for logs and tests.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "invalid"
	}
	return stateNames[s]
}

var stateNames = [...]string{"unknown", "ended", "no pod", "starting", "running", "paused", "maybe frozen"}

// Answer is what is known of a sandbox. Of an unknown one only State is set.
type Answer struct {
	State State
	// Route is set when Running, and new: the caller may set its Stamp.
	Route *routecache.Route
	// UID, Namespace, Env, Pool, Team, Private and Unsecured are the sandbox's.
	UID                        types.UID
	Namespace, Env, Pool, Team string
	Private, Unsecured         bool
	// Guarded: its pod runs a sandboxd that asks for the sandbox's token.
	Guarded bool
	// Sandboxd, of a Running one: its pod runs sandboxd.
	Sandboxd bool
	// InitKey, of a Running one, is the ID of the key that its pod's sandboxd is
	// initialised with.
	InitKey string
	// ClaimID, PodName and PodUID are its binding, empty without one.
	ClaimID, PodName, PodUID string
	// Resumes: a request resumes it if it is paused.
	Resumes bool
	// Generation is that of the sandbox's spec.
	Generation int64
}

// decide makes the answer from a sandbox's record and that of the pod with its binding's
// UID. A record that is not there is nil.
func decide(id string, s *sandbox, p *pod) Answer {
	if s == nil {
		return Answer{State: Unknown}
	}
	a := Answer{
		UID: s.uid, Namespace: s.namespace.Value(), Env: s.env.Value(), Pool: s.pool.Value(), Team: s.team.Value(), Private: s.private, Unsecured: s.unsecured,
		Guarded: p != nil && p.sandboxd && !s.unsecured,
		ClaimID: s.claim, PodName: s.podName, PodUID: s.podUID, Generation: int64(s.generation), Resumes: s.resumes,
	}
	switch {
	case s.ended:
		a.State = Ended
	case s.paused, s.restoring && s.claim == "":
		a.State, a.Guarded = Paused, !s.unsecured // only what runs sandboxd is ever paused
	case s.claim == "":
		a.State = NoPod
	case p == nil || !p.backs(id, s) || !p.routable():
		a.State = Starting
	case !s.awake:
		a.State = MaybeFrozen
	default:
		a.State, a.Sandboxd, a.InitKey = Running, p.sandboxd, p.initKey.Value()
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
