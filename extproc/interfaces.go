package extproc

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
)

// Availability is what a request for an ID can expect. It is not the index's State, which
// is what records and pods show: a sandbox whose pod runs is not reachable before its
// sandboxd was initialised.
type Availability uint8

// What a request for an ID can expect.
const (
	// IDUnknown: there is no sandbox of that ID.
	IDUnknown Availability = iota
	// IDEnded: the sandbox has ended and its record stays.
	IDEnded
	// IDNoPod: the sandbox exists and is bound to no pod.
	IDNoPod
	// IDStarting: the sandbox is bound to a pod that does not serve it yet, or
	// that does not back it any more.
	IDStarting
	// IDPaused: the sandbox is paused.
	IDPaused
	// IDReachable: a pod serves the sandbox.
	IDReachable
)

// Resolution is a resolver's answer. All but Availability is empty if the ID is unknown.
type Resolution struct {
	Availability Availability
	// Route is set when IDReachable. Its Stamp is nil; the server sets it on a copy.
	Route *routecache.Route
	// UID, Namespace, Env, Pool and Team are the sandbox's. Env is empty for one without,
	// Pool for one of an env that never had a pod.
	UID                        types.UID
	Namespace, Env, Pool, Team string
	// Private asks for the traffic token on every port that is not guarded.
	Private bool
	// Guarded: sandboxd serves its port and asks for the sandbox's token there.
	Guarded bool
	// Resumes: an authorised request resumes it if it is paused.
	Resumes bool
}

// Resolver finds the pod of a sandbox. Safe for concurrent use.
type Resolver interface {
	// Lookup answers from this gateway's own index. It neither blocks nor
	// leaves the process.
	Lookup(id string) Resolution
	// Resolve reads the API server, whatever the index says. It returns
	// ErrLimited if the caller's share of live reads is used up for now. caller
	// names the team whose valid key the request carries; all requests without one
	// are the empty caller.
	Resolve(ctx context.Context, id, caller string) (Resolution, error)
}

// ActivationRequest asks for a sandbox to be given a running pod. The deadline
// is the context's.
type ActivationRequest struct {
	// Env and Pool say where a pod comes from: from a member of the env, else from the
	// pool.
	ID, Namespace, Env, Pool, Team string
	// New: the index does not know the ID, so the sandbox is to be made. If it
	// turns out to exist and its activation is not already under way, Activate
	// returns ErrExists and the request is authorised anew.
	New bool
	// MayClaim: the caller is also allowed to have a pod claimed, if the sandbox
	// turns out to have none. Without it Activate only follows an activation that
	// is under way, and returns ErrExists when there is none. New implies it.
	MayClaim bool
	// Resume: the sandbox is paused, and is to be resumed if it is the one with this UID,
	// which the request was authorised for.
	Resume bool
	UID    types.UID
}

// Activator activates sandboxes. Safe for concurrent use.
type Activator interface {
	// Activate blocks until the sandbox may be resolved again (nil), or until
	// it is known that it cannot be activated (one of this package's errors).
	// Leaving early, when ctx is done, undoes nothing.
	Activate(ctx context.Context, r ActivationRequest) error
}

// KeyOwner is the owner of an API key: the part of what package credentials knows by
// which requests are authorised.
type KeyOwner struct{ Team, Namespace string }

// Keys verifies API keys. Safe for concurrent use.
type Keys interface {
	// Verify returns ErrBadKey for a key that is not valid. It is called on the
	// hot path and must not leave the process.
	Verify(ctx context.Context, key string) (KeyOwner, error)
}

// Pools knows the cluster's pools and envs. Safe for concurrent use.
type Pools interface {
	// Env returns what a first request must show to claim a pod of any member of the env; ok
	// is false if there is no such env.
	Env(namespace, name string) (access v1alpha1.FirstRequestAccess, ok bool)
	// Member reports whether the pool is a member of the env that claims may go to.
	Member(namespace, env, pool string) bool
	// MayMakeOf reports whether a member of the env may make a sandbox of that ID.
	MayMakeOf(namespace, env, id string) bool

	// Pool returns what a first request must show to claim a pod of the pool; with an
	// empty access none may. ok is false if there is no such pool.
	Pool(namespace, name string) (access v1alpha1.FirstRequestAccess, ok bool)
	// Reach returns what requests for the pool's sandboxes that were made by name must
	// show; for an unknown pool that is an API key. It is called on the hot path: it
	// takes no lock and allocates nothing.
	Reach(namespace, name string) v1alpha1.FirstRequestReach
	// ReachOfEnv is Reach for a sandbox that is not in the cache and may have an env. If
	// the pool is gone, the env decides.
	ReachOfEnv(namespace, env, pool string) v1alpha1.FirstRequestReach
	// MayMake reports whether the pool may make a sandbox of that ID, which
	// another pool can have reserved.
	MayMake(namespace, name, id string) bool
}

// Tokens checks the traffic and envd tokens and the cookies of sandboxes. Safe for concurrent use.
type Tokens interface {
	// ValidTraffic compares the token with that of the sandbox with this ID and UID,
	// in constant time.
	ValidTraffic(id string, uid types.UID, token string) bool
	// ValidEnvd does the same with the token that its sandboxd asks for.
	ValidEnvd(id string, uid types.UID, token string) bool
	// ValidPortCookie does the same with the cookie that opens one of its ports.
	ValidPortCookie(id string, uid types.UID, port uint16, cookie string) bool
}

// Lease says whether this gateway may answer at all.
type Lease interface {
	// Held is called just before every answer: atomics only.
	Held() bool
}

// Holds makes requests wait for the idle release of their claim. Safe for concurrent use.
type Holds interface {
	// Await returns nil once the claim's requests are no longer held: take the
	// route anew. ErrNotFound says that the release was carried out. It may call
	// the release off to spare the request a long wait.
	Await(ctx context.Context, id, claim string) error
}

// Room bounds what one client takes from all others of this gateway. Safe for concurrent
// use.
type Room interface {
	// Wait takes a place for a request that waits, until leave is called. The namespace is
	// the sandbox's, or that of the request's key while the sandbox is not known; empty
	// without a key. keyed: the request has shown a valid API key. It returns ErrParkingFull,
	// ErrNamespaceParking, ErrKeylessParking or ErrNameParking if there is no place.
	Wait(namespace, id string, keyed bool) (leave func(), err error)
	// Open counts a request that is about to be sent to the route's pod. It returns false if
	// the namespace has its share open. It is called on the hot path: it takes no lock and
	// allocates nothing.
	Open(r *routecache.Route) bool
	// Unsent takes back an Open that returned true: the request was not sent.
	Unsent(r *routecache.Route)
}

// Activity is where the use of sandboxes is noted. Safe for concurrent use.
type Activity interface {
	// Park counts the sandbox as in use until the returned function is called.
	Park(id string) (unpark func())
	// Resolving says that a request for the sandbox, which is not authorised yet,
	// waits for the API server, until the returned function is called. An idle
	// release that is prepared meanwhile is called off; nothing is stamped, so that
	// such requests do not keep a sandbox alive.
	Resolving(id string) (resolved func())
	// Stamp returns the stamp of a claim, made if need be.
	Stamp(id, claim string) *routecache.Stamp
	// StreamEnded notes that the claim was in use until then. It must not make
	// a stamp for a claim that has ended.
	StreamEnded(id, claim string, at time.Time)
}
