package activation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// lateGrace is how late an activation may be, on a busy machine, to say why it failed.
const lateGrace = time.Second

// errReadAgain sends an activation back to its state reading.
var errReadAgain = errors.New("read the sandbox again")

// activation gives one sandbox a running pod, for requests at this gateway.
//
// It works for all requests of one gateway that ask the same. Requests
// wait for it without a lock; it runs on a context of its own, so that a client
// that leaves undoes nothing. Only the activation's goroutine changes its state:
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
//   - reading: one live read of the Sandbox. Not New, and the gateway knows a pod that
//     runs it (Known): done by that, without a read; if the pod refuses, it is read.
//   - claiming: the pool's scheduler reserves a pod, Bind writes the binding
//     (create; or JSON Patch testing what was there), the scheduler claims the
//     pod. The gateway that wrote the binding owns the claim. While there is no pod,
//     and the index or a read after a second says that the sandbox has got one
//     elsewhere or has ended, the request leaves the scheduler's queue: reading.
//   - following: another gateway, or an earlier activation, owns the claim. Read the
//     pod; wait for a change that the index sees (Settled), at most a second. If
//     the pod is still idle a second after its binding was first seen, send the claim
//     PATCH for the owner; if it is gone or another's, replace the binding with the
//     next pod, as an owner.
//   - done: the pod runs; Ready makes it ready (what that is, its caller knows:
//     the gateway initialises sandboxd). It is called until it succeeds, by the
//     owner and by each follower that finds the claim on its pod, so that an
//     owner's death leaves no pod unready; a second call must do no harm. Then
//     Put into the cache, under a token taken just before the binding was written,
//     or before the sandbox was read. A refused Put is no error: the caller
//     resolves again. Without a Ready nothing happens between claim and Put.
//
// A request with Make has an activation of its own, which ends with it: that one makes
// a sandbox with an ID that no other process knows yet, and its Ready is its own. If it
// fails, its caller ends the sandbox that may have been made (Make.Tried).
//
// An activation whose requests have no MayClaim never enters claiming: it ends with
// ErrExists there. It may send the claim PATCH for an owner, which was allowed to claim.
type activation struct {
	a *Activator
	Request
	deadline time.Time // that of the request that began it
	ctx      context.Context
	cancel   context.CancelFunc

	changed chan struct{} // room for one: Settled was called, so the sandbox or its pod has changed
	// waiting is set while no pod has been found, or the last one was lost: to the
	// claim ID of the binding that the next one's replaces, "" for none.
	waiting atomic.Pointer[string]
	done    chan struct{} // closed when err is set
	err     error
	// distrusts: a pod refused what this gateway knows of its sandbox, so that is not
	// tried again. The activation's goroutine alone uses it.
	distrusts bool
	// underWay is the UID of the sandbox whose activation this activation has begun, or has
	// found under way; empty if there is none. While the activation claims a pod its claim
	// reads it, else the activation's goroutine alone uses it.
	underWay types.UID
	// starts is when this activation's claim landed on a pod that has to start; zero if
	// none did. The activation's goroutine alone uses it.
	starts time.Time
	// rereads are the waits before the sandbox is read again since its route was refused:
	// short ones first, for a resume's own binding drops the route that is asked for. The
	// activation's goroutine alone uses it.
	rereads *wait.Backoff
}

func newActivation(a *Activator, r Request) *activation {
	act := &activation{
		a: a, Request: r, deadline: r.Deadline,
		changed: make(chan struct{}, 1), done: make(chan struct{}),
		rereads: backoff.Doubling(rereadMin, retryMax),
	}
	act.ctx, act.cancel = context.WithDeadline(context.Background(), early(r.Deadline))
	return act
}

// serves reports whether the request may share the activation. Requests of different
// tenants, or with different permissions, do not: a request that may claim is not held up
// by an activation that may not, and a request that may not learns at once that there is
// no binding to follow, instead of waiting for another request's pod. Each activation
// follows a binding that another one writes.
func (act *activation) serves(r Request) bool {
	r.Deadline = act.Deadline
	return act.Request == r
}

// lateFor returns the error for a request whose deadline has come: the activation's
// own if it is about to end, which it does by its own deadline.
func (act *activation) lateFor(r Request) error {
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
		return retry(ErrNoCapacity)
	}
	return ErrNotReady
}

// run takes the activation to its end.
func (act *activation) run() {
	defer act.cancel()
	err := act.activate()
	if errors.Is(err, errGone) {
		err = nil
	}
	if stopping := act.a.remove(act); stopping && err != nil {
		err = retry(ErrShutdown)
	}
	act.err = err
	close(act.done)
}

// activate goes through the states in the comment of type activation.
func (act *activation) activate() error {
	if act.New {
		if err := act.claim(nil); !errors.Is(err, errReadAgain) {
			return err
		}
	}
	follow := &following{activation: act}
	for {
		if !act.distrusts {
			if done, err := act.finishKnown(); done {
				return err
			}
		}
		token := act.a.o.Cache.Begin(act.ID)
		s, err := act.readSandbox()
		if err != nil {
			return err
		}
		if s.Spec.Paused && !act.Resume.resumes(s) { // the caller resolves again, and finds it paused
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

// admit returns why the activation must not touch the sandbox; nil if it may. A request
// for a new sandbox may not have one that existed before and has no pod; it may have one
// whose activation was under way, also if its binding was taken back meanwhile.
func (act *activation) admit(s *v1alpha1.Sandbox) error {
	switch {
	case s.Spec.Namespace != act.Namespace, s.Spec.Env != act.Env, act.Env == "" && s.Spec.Pool != act.Pool, s.Spec.Team != act.Team:
		return ErrOtherTenant
	case s.Spec.End != nil, s.DeletionTimestamp != nil:
		return ErrEnded
	case act.Make != nil && s.Spec.FirstRequest:
		return ErrExists
	case act.Make == nil && act.New && (!s.Spec.FirstRequest || s.Spec.Binding == nil && s.UID != act.underWay):
		return ErrExists
	}
	return nil
}

// claim gets a pod for the sandbox from the scheduler of its pool, or of a member of
// its env; s is nil if it is to be made. A binding that s has is replaced. errReadAgain: another binding won.
func (act *activation) claim(s *v1alpha1.Sandbox) error {
	return act.claimWith(&binder{activation: act, sandbox: s})
}

func (act *activation) claimWith(b *binder) error {
	switch {
	case !act.MayClaim:
		return ErrExists
	case act.Env != "":
		return act.claimOfEnv(b, act.Env)
	}
	return act.claimFrom(b, act.Pool, nil, nil)
}

// errQueueFull: the pool's scheduler takes no more requests. It is an ErrNoCapacity too.
var errQueueFull = fmt.Errorf("%w: the pool's queue is full", ErrNoCapacity)

// claimFrom is claim from one pool. joined, if it is not nil, is called as soon as the
// request stands in the pool's queue. elsewhere, if it is not nil, is asked while the
// request waits and has no pod: true ends the wait with errElsewhere.
func (act *activation) claimFrom(b *binder, pool string, joined func(), elsewhere func() bool) error {
	scheduler, ok := act.a.o.Schedulers(act.Namespace, pool)
	if !ok {
		return ErrPoolNotFound
	}
	until, _ := act.ctx.Deadline()
	queued, leave := context.WithCancel(act.ctx)
	defer leave()
	request := &schedule.ClaimRequest{
		Ctx: queued, Deadline: until, ResultCh: make(chan schedule.ClaimResult, 1),
		Tenant: act.Team, SandboxID: act.ID, Env: act.Env, Bind: b.bind, Lost: b.lost, Unbind: b.unbind,
	}
	b.pool = pool
	if s := b.sandbox; s != nil {
		request.Opts.ContainerImages = s.Spec.Images
		if s.Spec.Binding != nil {
			b.replaces = s.Spec.Binding.ClaimID
		}
	}
	if b.queued.IsZero() {
		b.queued = time.Now()
	}
	if act.New && act.Env != "" && act.a.o.Asked != nil {
		act.a.o.Asked(act.Namespace, pool)
	}
	act.markWaiting(b.replaces) // from here on b is the claim's
	if !scheduler.Enqueue(request) {
		return retry(errQueueFull)
	}
	if joined != nil {
		joined()
	}
	result, moves := act.await(scheduler, request, leave, elsewhere)
	switch {
	case moves && errors.Is(result.Err, context.Canceled) && act.ctx.Err() == nil: // it left the queue, and no claim had begun
		return errElsewhere
	case errors.Is(result.Err, schedule.ErrBindLost):
		return errReadAgain
	case errors.Is(result.Err, schedule.ErrClaimOver): // the sandbox ends: wait for that as a follower
		return errReadAgain
	case errors.Is(result.Err, context.Canceled) && act.ctx.Err() == nil: // it left the queue (await)
		return errReadAgain
	case errors.Is(result.Err, context.Canceled) && errors.Is(act.ctx.Err(), context.DeadlineExceeded):
		return ErrNotReady // it left, and its time is over: the sandbox has a pod, which does not answer yet
	case result.Err != nil:
		return fromSchedule(result.Err)
	}
	act.a.o.Metrics.phase(phasePatch, time.Since(b.bound))
	if act.Env != "" {
		act.a.o.Metrics.ranked(rankOf(act.a.o.Members(act.Namespace, act.Env), pool))
	}
	if v1alpha1.PhaseOf(result.Pod) == v1alpha1.PodRunning {
		return act.finish(b.token, b.sandbox, result.Pod)
	}
	act.starts = time.Now()
	return errReadAgain // the pod is starting: follow our own claim
}

// await returns the scheduler's answer. An activation that waits for stock leaves the
// queue when the sandbox has got a pod elsewhere, or has ended: it may never be
// its turn. It reads the sandbox when the index has seen a change, and within a second for
// what the index had seen before the activation began, or while it had a pod that
// was lost then, and for what could not be read. While there is stock only the
// index makes it read: a burst that waits for its turn costs no read.
//
// elsewhere says to leave for another pool; moves is true then. It is asked while the
// activation has no pod, also when it has lost one: the binding to that one goes when the
// request leaves. It may have been too late: the result is that of a claim which has begun.
func (act *activation) await(scheduler *schedule.PoolScheduler, request *schedule.ClaimRequest, leave func(), elsewhere func() bool) (result schedule.ClaimResult, moves bool) {
	tick := time.NewTicker(followAfter)
	defer tick.Stop()
	for unseen := true; ; {
		select {
		case result := <-request.ResultCh:
			return result, false
		case <-act.changed:
			unseen = true
		case <-tick.C:
			if scheduler.Stocked() {
				continue // its turn comes soon, and what is written then finds out
			}
		}
		replaces := act.waiting.Load()
		if replaces != nil && elsewhere != nil && elsewhere() {
			leave()
			return <-request.ResultCh, true
		}
		if !unseen || replaces == nil {
			continue
		}
		settled, err := act.settledElsewhere(*replaces)
		if err != nil {
			tick.Reset(callTimeout) // thousands may wait: not each second
			continue
		}
		if act.waiting.Load() != replaces {
			continue // a pod was found meanwhile, and what was read may be its binding
		}
		if settled {
			leave()
			return <-request.ResultCh, false // of a claim that has begun meanwhile, its own
		}
		unseen = false
	}
}

// settledElsewhere reads whether the sandbox has ended, or another binding than
// the one to be replaced. One that is gone, or is not there yet, has not.
func (act *activation) settledElsewhere(replaces string) (bool, error) {
	s := &v1alpha1.Sandbox{}
	if err := act.readOnce(act.ctx, client.ObjectKey{Name: act.ID}, s); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	b := s.Spec.Binding
	return s.Spec.End != nil || s.DeletionTimestamp != nil || b != nil && b.ClaimID != replaces, nil
}

// markWaiting notes that the activation waits for a pod.
func (act *activation) markWaiting(replaces string) { act.waiting.Store(&replaces) }

// early returns when an activation gives up: a little before its requests' deadline, so
// that they are answered with its error and not with the deadline's.
func early(deadline time.Time) time.Time {
	margin := min(250*time.Millisecond, time.Until(deadline)/5)
	return deadline.Add(-max(margin, 0))
}
