package routing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// KeyOwner is the owner of an API key. KeyID names the key in the audit log without being it.
type KeyOwner struct {
	Team, Namespace, KeyID string
	// NamespaceUID tells apart the namespaces that have that name one after the other.
	NamespaceUID types.UID
}

// Name tells API keys apart, and does not contain the key.
func (o KeyOwner) Name() string { return o.Namespace + "/" + o.Team + "/" + o.KeyID }

// Request asks that a sandbox gets a running pod. It was authorised.
type Request struct {
	ID string
	// Namespace, Pool and Team are those of the sandbox to be made, or those that the caller
	// knows of an existing sandbox.
	Namespace, Pool, Team string
	// Env is the env of the sandbox; empty if it has none. If it is set, Pool is ignored, and
	// any pool that is a member of the env may give the pod.
	Env string
	// New: the gateway knows no sandbox of this ID; make it. If one exists and its activation is
	// not already under way, the request fails with ErrExists, and is authorised anew.
	New bool
	// MayClaim: a pod may be claimed for the sandbox if it has no binding, or its
	// binding's pod is lost. Without MayClaim the request can only wait for a claim that
	// another request has begun; ErrExists says that there is none. New implies MayClaim.
	MayClaim bool
	// Resume resumes the sandbox if it is paused.
	Resume Resume
	// Deadline is when the request is answered at the latest. Zero means the
	// context's, else 30 s from now.
	Deadline time.Time
}

// Resume says which paused sandbox a request resumes; the zero value names none.
type Resume struct {
	// UID is that of the sandbox which the request was authorised for.
	UID types.UID
	// Lifetime is how long the sandbox is to run from then on; 0 means without an end time.
	Lifetime time.Duration
}

// Member is a pool of an env, with what a claim needs to choose among them.
type Member struct {
	Pool string
	// Priority orders members that have idle pods, ScaleUpPriority those where a claim
	// would wait; the lower number first.
	Priority, ScaleUpPriority int32
	// Saturated: the pool could not grow lately, or has all pods that it may have. It is
	// tried last.
	Saturated bool
}
