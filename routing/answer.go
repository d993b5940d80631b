package routing

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routecache"
)

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

// StateNames returns the names of all states.
func StateNames() []string { return stateNames[:] }

var stateNames = [...]string{"unknown", "ended", "no pod", "starting", "running", "paused", "maybe frozen"}

// Answer is what is known of a sandbox. Of an unknown one only State is set.
type Answer struct {
	State State
	// Route is set when Running, and new: the caller may set its Use.
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
	// PauseOrder is the sandbox's spec.pauseOrder.
	PauseOrder int64
}
