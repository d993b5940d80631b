package schedule

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// DefaultPatience is the time a request without a Deadline has.
const DefaultPatience = 30 * time.Second

// ClaimRequest asks for a pod for one sandbox. It belongs to the scheduler from
// Enqueue until its result.
type ClaimRequest struct {
	// Ctx, when done, takes a request out of the queue; a claim that has begun
	// goes on. Nil means context.Background().
	Ctx  context.Context
	Opts ClaimOptions
	// Deadline is when the request is answered at the latest. Zero means
	// DefaultPatience from now.
	Deadline time.Time
	// ResultCh gets exactly one result. It should have room for one; without
	// room a goroutine waits until the result is read.
	ResultCh chan<- ClaimResult
	// EnqueuedAt is what dispatch latency counts from. Zero means now.
	EnqueuedAt time.Time
	// Tenant is the tenant whose share of the queue the request takes. Empty means
	// the pool's team.
	Tenant    string
	SandboxID string
	// Env is the sandbox's env, a label of its pod; empty for none.
	Env string
	// Rules is the value of v1alpha1.LabelRules that its pod gets; empty for none.
	Rules string
	// ClaimID names the claim of the first pod that is tried; each further pod
	// gets a new one. Empty means a new one.
	ClaimID string
	// Bind writes the sandbox's binding to a pod that is reserved and not claimed yet.
	// Its pod has only what BindingOf needs: name, namespace, UID and, as annotation,
	// the claim ID of this attempt. When that pod is lost, Bind is called again with
	// another pod and claim ID, and replaces the binding that it wrote before. Nil means
	// that there is nothing to write.
	Bind func(ctx context.Context, pod *corev1.Pod) error
	// Lost is called when a pod was lost, just before the request waits for the
	// next one. It must not block, nor call the scheduler. Nil: not called.
	Lost func()
	// Unbind takes back what Bind last wrote, for that pod. It is called at most
	// once, when the request has failed and it is certain that the pod will not
	// serve it, whichever process sends the claim: the pod is taken, gone or stopped,
	// may not be reached, or the claim is ErrInvalid. It may run after the result. Nil
	// means nothing to take back.
	Unbind func(ctx context.Context, pod *corev1.Pod) error
}

// ClaimResult is a pod as the API server showed it with the claim on it, or an
// error of this package's, of Bind's, or of Ctx.
type ClaimResult struct {
	Pod *corev1.Pod
	Err error
}
