package extproc

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// Resolver finds the pod of a sandbox. Safe for concurrent use.
type Resolver interface {
	// Lookup answers from this gateway's own index. It neither blocks nor
	// leaves the process. A pod whose sandboxd has yet to be initialised is Starting.
	Lookup(id string) routing.Answer
	// Resolve reads the API server, whatever the index says. It returns
	// routing.ErrLimited if the caller's share of live reads is used up for now. caller
	// names the team whose valid key the request carries; all requests without one
	// are the empty caller.
	Resolve(ctx context.Context, id, caller string) (routing.Answer, error)
}

// Activator activates sandboxes. Safe for concurrent use.
type Activator interface {
	// Activate blocks until the sandbox may be resolved again (nil), or until it is known
	// that it cannot be activated (an error of package routing). Leaving early, when ctx is
	// done, undoes nothing. If Resume names a UID it resumes the sandbox of that UID, for as
	// long as its own timeout says.
	Activate(ctx context.Context, r routing.Request) error
}

// Keys verifies API keys. Safe for concurrent use.
type Keys interface {
	// Verify returns routing.ErrBadKey for a key that is not valid. It is called on the
	// hot path and must not leave the process.
	Verify(ctx context.Context, key string) (routing.KeyOwner, error)
}

// Pools knows the cluster's pools and envs. Safe for concurrent use.
type Pools interface {
	// EnvAccess returns what a first request must show to claim a pod of any member of the env; ok
	// is false if there is no such env.
	EnvAccess(namespace, name string) (access v1alpha1.FirstRequestAccess, ok bool)
	// Member reports whether the pool is a member of the env that claims may go to.
	Member(namespace, env, pool string) bool
	// MayMakeOf reports whether a member of the env may make a sandbox of that ID.
	MayMakeOf(namespace, env, id string) bool

	// PoolAccess returns what a first request must show to claim a pod of the pool; with an
	// empty access none may. ok is false if there is no such pool.
	PoolAccess(namespace, name string) (access v1alpha1.FirstRequestAccess, ok bool)
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
	// route anew. routing.ErrNotFound says that the release was carried out. It may call
	// the release off to spare the request a long wait.
	Await(ctx context.Context, id, claim string) error
}

// Room bounds what one client takes from all others of this gateway. Safe for concurrent
// use.
type Room interface {
	// Wait takes a place for a request that waits, until leave is called. The namespace is
	// the sandbox's, or that of the request's key while the sandbox is not known; empty
	// without a key. keyed: the request has shown a valid API key. It returns routing.ErrParkingFull,
	// routing.ErrNamespaceParking, routing.ErrKeylessParking or routing.ErrNameParking if there is no place.
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
	// release that is prepared meanwhile is called off; nothing is noted, so that
	// such requests do not keep a sandbox alive.
	Resolving(id string) (resolved func())
	// ClaimUse returns the use of a claim, made if need be.
	ClaimUse(id, claim string) *routecache.ClaimUse
	// StreamEnded notes that the claim was in use until then. It must not make
	// a use for a claim that has ended.
	StreamEnded(id, claim string, at time.Time)
}
