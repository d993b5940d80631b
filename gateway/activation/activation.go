package activation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// lateGrace is how long a request waits after its deadline for the error of its activation,
// which may be late on a busy machine.
const lateGrace = time.Second

// errReadAgain makes an activation go back to its state reading.
var errReadAgain = errors.New("read the sandbox again")

// activation gives one sandbox a running pod, for requests at this gateway.
//
// All requests of one gateway that ask for the same share one activation. They wait for it
// without a lock; it runs on a context of its own, so that it goes on when a client leaves.
// Only the activation's goroutine changes its state:
//
//	           ┌─────────────── binding lost ────────────────┐
//	           ▼                                             │
//	start ─▶ reading ──no sandbox (New), or no binding──▶ claiming ──pod runs──▶ done
//	  │        │ ▲                                        ▲     │
//	  │        │ └── a change, or a second later ──┐      │     └─pod starts─┐
//	  │        └──bound──▶ following ──────────────┴──────┘ pod lost         │
//	  │                        │   ▲                                         │
//	  └─New: claiming at once  │   └─────────────────────────────────────────┘
//	                           └──pod runs──▶ done
//
// In each state:
//   - reading: read the Sandbox from the API server. If the request is not New and the
//     gateway knows a pod that runs the sandbox (Known), go to done with that pod and
//     without a read; if the pod refuses, read.
//   - claiming: the pool's scheduler reserves a pod, Bind writes the binding (by a create,
//     or by a JSON Patch that tests the old binding), the scheduler claims the pod. The
//     gateway that wrote the binding owns the claim. If no pod is reserved yet, and the
//     index or a read after a second shows that another process has given the sandbox a pod
//     or that the sandbox has ended, leave the scheduler's queue and go to reading.
//   - following: another gateway, or an earlier activation, owns the claim. Read the
//     pod; wait for a change that the index sees (NoteChange), at most a second. If the pod
//     is still idle a second after its binding was first seen, send the claim PATCH in the
//     owner's place; if the pod is gone or belongs to another sandbox, replace the binding
//     with one to the next pod, and own that claim.
//   - done: the pod runs. Call Ready until it succeeds (the gateway's Ready initialises
//     sandboxd). The owner calls it, and each follower that finds the claim on its pod,
//     so that no pod stays unready because its owner died; a second call must do no harm.
//     Then put the route into the cache, under a token taken just before the binding was
//     written or the sandbox was read. A refused Put is no error: the caller resolves
//     again. Without a Ready nothing happens between the claim and the Put.
//
// A create has an activation of its own, with a Ready of its own, which ends
// with the request: it makes a sandbox whose ID no other process knows yet. If it fails,
// its caller ends the sandbox that may have been made (Make.Tried).
//
// An activation whose requests have no MayClaim never enters claiming: instead it ends with
// routing.ErrExists. It may send the claim PATCH for an owner, which was allowed to claim.
type activation struct {
	a *Activator
	request
	deadline time.Time // of the request that began the activation
	ctx      context.Context
	cancel   context.CancelFunc

	changed chan struct{} // has room for one value, which NoteChange sends
	// waiting is set while the activation waits for a pod, because none was found yet or the
	// last one was lost. It holds the claim ID of the binding that the next pod's binding
	// replaces; "" if there is none.
	waiting atomic.Pointer[string]
	done    chan struct{} // closed when err is set
	err     error
	// knownFailed: the pod that this gateway knows of (Known) has refused, so that it is not
	// tried again. Only the activation's goroutine uses it.
	knownFailed bool
	// underWay is the UID of a sandbox that this activation has bound to a pod, or has found
	// bound; empty if there is none. While the activation claims a pod the claim's goroutine
	// reads it, at other times only the activation's goroutine uses it.
	underWay types.UID
	// startingSince is when this activation claimed a pod that has to start; zero if it
	// claimed none. Only the activation's goroutine uses it.
	startingSince time.Time
	// rereads are the delays before the sandbox is read again because the cache refused its
	// route. They begin short: the event of a resume's own binding makes the cache refuse the
	// route, and a read after that event is enough. Only the activation's goroutine uses it.
	rereads *wait.Backoff
}

func newActivation(a *Activator, r request) *activation {
	act := &activation{
		a: a, request: r, deadline: r.Deadline,
		changed: make(chan struct{}, 1), done: make(chan struct{}),
		rereads: backoff.Doubling(rereadMin, retryMax),
	}
	act.ctx, act.cancel = context.WithDeadline(context.Background(), giveUpAt(r.Deadline))
	return act
}

// serves reports whether the request may share the activation: whether both ask for the
// same, but for the deadline. Requests of different tenants, or with different permissions,
// have activations of their own. So an activation that may not claim does not hold up a
// request that may, and a request that may not claim learns at once that there is no binding
// to follow. Each activation follows a binding that another one writes.
func (act *activation) serves(r request) bool {
	r.Deadline = act.Deadline
	return act.request == r
}

// errorAtDeadline returns the error for a request whose deadline has come. It is the
// activation's own error if the activation ends by the same deadline.
func (act *activation) errorAtDeadline(r request) error {
	if !act.deadline.After(r.Deadline) {
		t := time.NewTimer(lateGrace)
		defer t.Stop()
		select {
		case <-act.done:
			return act.err
		case <-t.C:
		}
	}
	if act.waiting.Load() != nil {
		return retry(routing.ErrNoCapacity)
	}
	return ErrNotReady
}

// run runs the activation to its end.
func (act *activation) run() {
	defer act.cancel()
	err := act.activate()
	if errors.Is(err, errGone) {
		err = nil
	}
	if stopping := act.a.remove(act); stopping && err != nil {
		err = retry(routing.ErrDraining)
	}
	act.err = err
	close(act.done)
}

// activate goes through the states that the comment of type activation lists.
func (act *activation) activate() error {
	if act.New {
		if err := act.claim(nil); !errors.Is(err, errReadAgain) {
			return err
		}
	}
	follow := &following{activation: act}
	for {
		if !act.knownFailed {
			if done, err := act.finishKnown(); done {
				return err
			}
		}
		token := act.a.o.Cache.Begin(act.ID)
		s, err := act.readSandbox()
		if err != nil {
			return err
		}
		if s.Spec.Paused && !act.resumes(s) { // the caller resolves again, and finds it paused
			return nil
		}
		if s.Spec.Binding == nil {
			err = act.claim(s)
		} else {
			err = follow.step(token, s)
		}
		if !errors.Is(err, errReadAgain) {
			return err
		}
	}
}

// readSandbox reads the sandbox and checks that this request may activate it.
func (act *activation) readSandbox() (*v1alpha1.Sandbox, error) {
	s := &v1alpha1.Sandbox{}
	if err := act.read(act.ctx, client.ObjectKey{Name: act.ID}, s); err != nil {
		return nil, err
	}
	err := act.admit(s)
	if err == nil && s.Spec.Binding != nil {
		act.underWay = s.UID
	}
	return s, err
}

// admit returns the error for a sandbox that the activation must not activate; nil if it
// may. A request for a new sandbox must not activate one that existed before and has no
// pod. It may activate one whose activation is under way, also if its binding was removed
// meanwhile.
func (act *activation) admit(s *v1alpha1.Sandbox) error {
	switch {
	case s.Spec.Namespace != act.Namespace, s.Spec.Env != act.Env, act.Env == "" && s.Spec.Pool != act.Pool, s.Spec.Team != act.Team:
		return ErrOtherTenant
	case s.Spec.End != nil, s.DeletionTimestamp != nil:
		return routing.ErrEnded
	case act.Make != nil && s.Spec.FirstRequest:
		return routing.ErrExists
	case act.Make == nil && act.New && (!s.Spec.FirstRequest || s.Spec.Binding == nil && s.UID != act.underWay):
		return routing.ErrExists
	}
	return nil
}

// claim gets a pod for the sandbox from the scheduler of its pool, or of a member of its
// env; s is nil if the sandbox is to be made. It replaces the binding of s, if s has one.
// errReadAgain means that the sandbox has got another binding.
func (act *activation) claim(s *v1alpha1.Sandbox) error {
	return act.claimWith(&binder{activation: act, sandbox: s})
}

func (act *activation) claimWith(b *binder) error {
	if !act.MayClaim {
		return routing.ErrExists
	}
	if s := b.sandbox; s != nil && s.Spec.Restore != nil && act.a.o.Restorable != nil {
		if err := act.a.o.Restorable(act.ctx, s); err != nil { // before any pod is kept for the request
			return fmt.Errorf("restore sandbox %s: %w", act.ID, err)
		}
	}
	if act.Env != "" {
		return act.claimOfEnv(b, act.Env)
	}
	return act.claimFrom(b, act.Pool, nil, nil)
}

// errQueueFull: the queue of the pool's scheduler is full. It is an routing.ErrNoCapacity too.
var errQueueFull = fmt.Errorf("%w: the pool's queue is full", routing.ErrNoCapacity)

// claimFrom is claim from one pool. It calls joined, if that is not nil, as soon as the
// request is in the pool's queue. While the request waits for a pod it calls shouldLeave, if
// that is not nil: true ends the wait with errLeftQueue.
func (act *activation) claimFrom(b *binder, pool string, joined func(), shouldLeave func() bool) error {
	scheduler, ok := act.a.o.Schedulers(act.Namespace, pool)
	if !ok {
		return routing.ErrPoolNotFound
	}
	until, _ := act.ctx.Deadline()
	queued, leave := context.WithCancel(act.ctx)
	defer leave()
	results := make(chan schedule.ClaimResult, 1)
	request := &schedule.ClaimRequest{
		Ctx: queued, Deadline: until, ResultCh: results,
		Tenant: act.Team, SandboxID: act.ID, Env: act.Env, Bind: b.bind, Lost: b.lost, Unbind: b.unbind,
	}
	b.pool, request.Rules = pool, b.rules(pool)
	if s := b.sandbox; s != nil {
		request.Opts.ContainerImages = s.Spec.Images
		if s.Spec.Binding != nil {
			b.replaces = s.Spec.Binding.ClaimID
		}
	}
	if b.queued.IsZero() {
		b.queued = time.Now()
	}
	if act.New && act.Env != "" && act.a.o.OnNewRequest != nil {
		act.a.o.OnNewRequest(act.Namespace, pool)
	}
	act.markWaiting(b.replaces) // from here on only the claim's goroutine uses b
	if !scheduler.Enqueue(request) {
		return retry(errQueueFull)
	}
	if joined != nil {
		joined()
	}
	result, moves := act.awaitClaim(scheduler, pool, results, leave, shouldLeave)
	switch {
	case moves && errors.Is(result.Err, context.Canceled) && act.ctx.Err() == nil: // the request left the queue before a claim had begun
		return errLeftQueue
	case errors.Is(result.Err, writes.ErrStale):
		return errReadAgain
	case errors.Is(result.Err, schedule.ErrClaimOver): // the sandbox is ending: wait for its end as a follower
		return errReadAgain
	case errors.Is(result.Err, context.Canceled) && act.ctx.Err() == nil: // awaitClaim left the queue: the sandbox has another pod, or has ended
		return errReadAgain
	case errors.Is(result.Err, context.Canceled) && errors.Is(act.ctx.Err(), context.DeadlineExceeded):
		return ErrNotReady // awaitClaim left the queue, and the deadline has passed: the sandbox has a pod, which does not answer yet
	case result.Err != nil:
		return fromSchedule(result.Err)
	}
	act.a.o.Metrics.observePhase(phasePatch, time.Since(b.bound))
	if act.Env != "" {
		act.a.o.Metrics.countRank(rankOf(act.a.o.Members(act.Namespace, act.Env), pool))
	}
	switch running := v1alpha1.PhaseOf(result.Pod) == v1alpha1.PodRunning; {
	case running && v1alpha1.EverPaused(b.sandbox):
		return act.finishResumed(b.replaces, result.Pod)
	case running:
		return act.finish(b.token, b.sandbox, result.Pod)
	}
	act.startingSince = time.Now()
	return errReadAgain // the pod is starting: follow this activation's own claim
}

// finishResumed is finish after the claim of a sandbox that was paused before. The binder's
// token is of no use then: each change of such a sandbox may have been a pause, so that the
// event of the binding itself invalidates the token. finishResumed reads the sandbox for a
// token of its own, which follow would do too, after a delay and with a read of the pod.
func (act *activation) finishResumed(claimID string, pod *corev1.Pod) error {
	token := act.a.o.Cache.Begin(act.ID)
	s, err := act.readSandbox()
	switch {
	case err != nil:
		return err
	case s.Spec.Paused, s.Spec.Binding == nil, s.Spec.Binding.ClaimID != claimID:
		return errReadAgain
	}
	return act.finish(token, s, pod)
}

// giveUpAt returns the time at which an activation gives up: a little before the deadline of
// its requests, so that they are answered with the activation's error and not with that of
// the deadline.
func giveUpAt(deadline time.Time) time.Time {
	margin := min(250*time.Millisecond, time.Until(deadline)/5)
	return deadline.Add(-max(margin, 0))
}
