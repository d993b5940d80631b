package schedule

import (
	"container/list"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
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
	// room a goroutine waits until somebody reads it.
	ResultCh chan ClaimResult
	// EnqueuedAt is what dispatch latency counts from. Zero means now.
	EnqueuedAt time.Time
	// Tenant is whose share of the queue the request takes. Empty means the
	// pool's team.
	Tenant    string
	SandboxID string
	// ClaimID names the claim of the first pod that is tried; each further pod
	// gets a new one. Empty means a new one.
	ClaimID string
	// Bind writes who owns the sandbox, once a pod is reserved and before it is
	// claimed. The pod it gets is what is known of it, with name, namespace,
	// UID, and as annotation the claim ID of this attempt (BindingOf). It is
	// called again, with another pod and claim ID, when a pod was lost, and then
	// replaces what it wrote. Nil means that there is nothing to write.
	Bind func(ctx context.Context, pod *corev1.Pod) error
	// Lost is called when a pod was lost, just before the request waits for the
	// next one. It must not block, nor call the scheduler. Nil: not called.
	Lost func()
	// Unbind takes back what Bind last wrote, for that pod. It is called at most
	// once, when the request has failed and it is certain that the pod will not
	// serve it whoever sends the claim: it is taken, gone or stopped, may not be
	// reached, or the claim is ErrInvalid. It may run after the result. Nil means
	// nothing to take back.
	Unbind func(ctx context.Context, pod *corev1.Pod) error
}

// ClaimResult is a pod as the API server showed it with the claim on it, or an
// error of this package's, of Bind's, or of Ctx.
type ClaimResult struct {
	Pod *corev1.Pod
	Err error
}

// entry is a request inside the scheduler.
type entry struct {
	*ClaimRequest
	done chan struct{} // closed when answered

	// The scheduler's mutex guards these.
	answered   bool
	place      *list.Element // in the waiting queue; nil while claiming
	failure    error         // why the last pod was not to be had; explains a deadline
	disarm     func()
	dispatched bool

	// Owned by whoever holds the entry: the queue, then one claim goroutine.
	bound    *corev1.Pod // Bind succeeded for it, and nobody has replaced that
	unfenced *Claim      // on the pod that bound names, which may not be reached; to be ended once bound does not
	refusals int         // idle pods that did not take its claim
}

// attempt is the pod as Bind gets it.
func (e *entry) attempt(rec *podRecord, namespace string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = rec.name, namespace, rec.uid
	pod.Labels = map[string]string{v1alpha1.LabelSandboxID: e.SandboxID}
	pod.Annotations = map[string]string{v1alpha1.AnnotationClaim: e.ClaimID}
	return pod
}

// late is the error of an entry whose deadline has passed.
func (e *entry) late(pool string) error {
	switch {
	case e.failure != nil:
		return fmt.Errorf("pool %s: %w: %w", pool, ErrDeadline, e.failure)
	case e.place == nil:
		return fmt.Errorf("pool %s: %w: a claim is under way: %w", pool, ErrDeadline, ErrUnavailable)
	}
	return fmt.Errorf("pool %s: %w", pool, ErrDeadline)
}
