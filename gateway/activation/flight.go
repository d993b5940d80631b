package activation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// lateGrace is how late a flight may be, on a busy machine, to say why it failed.
const lateGrace = time.Second

// errLook sends a flight back to look at its sandbox.
var errLook = errors.New("look again")

// flight is one activation of one sandbox by this gateway.
//
// It works for all requests of one gateway that ask the same. Requests
// wait for it without a lock; it runs on a context of its own, so that a client
// that leaves undoes nothing. Only the flight's goroutine changes its state:
//
//	           ┌────────────── binding lost ──────────────┐
//	           ▼                                          │
//	start ─▶ look ──no sandbox (New), or no binding──▶ claiming ──pod runs──▶ done
//	  │        │ ▲                                     ▲     │
//	  │        │ └── woken, or a second later ──┐      │     └─pod starts─┐
//	  │        └──bound──▶ following ───────────┴──────┘ pod lost         │
//	  │                        │   ▲                                      │
//	  └─New: claiming at once  │   └──────────────────────────────────────┘
//	                           └──pod runs──▶ done
//
// In each state:
//   - look: one live read of the Sandbox. Not New, and the gateway knows a pod that
//     runs it (Known): done by that, without a read; if the pod refuses, it is read.
//   - claiming: the pool's scheduler reserves a pod, Bind writes the binding
//     (create; or JSON Patch testing what was there), the scheduler claims the
//     pod. Whoever wrote the binding owns the activation. While there is no pod,
//     and the index or a look after a second says that the sandbox has got one
//     elsewhere or has ended, the request leaves the scheduler's queue: look.
//   - following: another owns it. Read the pod; wait to be woken by the index
//     (Settled), at most a second. A second after a binding was first seen, and
//     its pod is still idle, send the claim PATCH for its owner; if the pod is
//     gone or another's, replace the binding with the next pod, as an owner.
//   - done: the pod runs; Ready makes it ready (what that is, its caller knows:
//     the gateway initialises sandboxd). It is called until it succeeds, by the
//     owner and by whoever finds the claim on its pod while following, so that an
//     owner's death leaves no pod unready; it must bear being called twice. Then
//     Put into the cache, under a token taken just before the binding was written,
//     or before the sandbox was read. A refused Put is no error: the caller
//     resolves again. Without a Ready nothing happens between claim and Put.
//
// A request with Make has a flight of its own, which ends with it: that one makes
// a sandbox with an ID that nobody else knows yet, with a Ready that nobody else
// could stand in for. Whatever its flight ends with but success, its caller ends
// what may have been made (Make.Tried).
//
// A flight whose requests have no MayClaim never enters claiming: it ends with
// ErrExists there. The claim PATCH it may send for an owner, who was allowed to.
type flight struct {
	a *Activator
	Request
	deadline time.Time // that of the request that began it
	ctx      context.Context
	cancel   context.CancelFunc

	wake chan struct{} // room for one: Settled was called
	// waiting is set while no pod has been found, or the last one was lost: to the
	// claim ID of the binding that the next one's replaces, "" for none.
	waiting atomic.Pointer[string]
	done    chan struct{} // closed when err is set
	err     error
	// distrusts: a pod refused what this gateway knows of its sandbox, so that is not
	// tried again. The flight's goroutine alone uses it.
	distrusts bool
	// underWay is the UID of the sandbox whose activation this flight has begun, or has
	// found under way; empty if there is none. While the flight claims a pod its claim
	// reads it, else the flight's goroutine alone uses it.
	underWay types.UID
	// starts is when this flight's claim landed on a pod that has to start; zero if
	// none did. The flight's goroutine alone uses it.
	starts time.Time
}

func newFlight(a *Activator, r Request) *flight {
	f := &flight{
		a: a, Request: r, deadline: r.Deadline,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	f.ctx, f.cancel = context.WithDeadline(context.Background(), early(r.Deadline))
	return f
}

// serves reports whether the flight does what the request asks. Requests that
// differ in whom they come from, or in what they may do, do not share a fate:
// one that may claim is not held up by a flight that may not, and one that may
// not hears at once that there is nothing to follow, and does not wait for the
// pod that another's flight was granted. Each follows what the other binds.
func (f *flight) serves(r Request) bool {
	r.Deadline = f.Deadline
	return f.Request == r
}

// lateFor is what a request hears whose deadline has come: the flight's own
// words if it is about to end, which it does by its deadline.
func (f *flight) lateFor(r Request) error {
	if !f.deadline.After(r.Deadline) {
		t := time.NewTimer(lateGrace)
		defer t.Stop()
		select {
		case <-f.done:
			return f.err
		case <-t.C:
		}
	}
	if f.waiting.Load() != nil {
		return retry(ErrNoCapacity)
	}
	return ErrNotReady
}

// fly runs the flight to its end.
func (f *flight) fly() {
	defer f.cancel()
	err := f.activate()
	if errors.Is(err, errGone) {
		err = nil
	}
	if stopping := f.a.landed(f); stopping && err != nil {
		err = retry(ErrShutdown)
	}
	f.err = err
	close(f.done)
}

// activate goes through the states that flight's comment draws.
func (f *flight) activate() error {
	if f.New {
		if err := f.claim(nil); !errors.Is(err, errLook) {
			return err
		}
	}
	follow := &following{flight: f}
	for {
		if !f.distrusts {
			if done, err := f.finishKnown(); done {
				return err
			}
		}
		token := f.a.o.Cache.Begin(f.ID)
		s, err := f.look()
		if err != nil {
			return err
		}
		if s.Spec.Paused { // its caller resolves again, and finds it paused
			return nil
		}
		if s.Spec.Binding == nil {
			err = f.claim(s)
		} else {
			err = follow.step(token, s)
		}
		if !errors.Is(err, errLook) {
			return err
		}
	}
}

// look reads the sandbox and checks that this request may activate it.
func (f *flight) look() (*v1alpha1.Sandbox, error) {
	s := &v1alpha1.Sandbox{}
	if err := f.read(f.ctx, client.ObjectKey{Name: f.ID}, s); err != nil {
		return nil, err
	}
	err := f.admit(s)
	if err == nil && s.Spec.Binding != nil {
		f.underWay = s.UID
	}
	return s, err
}

// admit says why the flight must leave the sandbox alone, if it must. A new request is
// not for a sandbox that was there before and has no pod; it is for one whose activation
// was under way, also if its binding was taken back meanwhile.
func (f *flight) admit(s *v1alpha1.Sandbox) error {
	switch {
	case s.Spec.Namespace != f.Namespace, s.Spec.Env != f.Env, f.Env == "" && s.Spec.Pool != f.Pool, s.Spec.Team != f.Team:
		return ErrOtherTenant
	case s.Spec.End != nil, s.DeletionTimestamp != nil:
		return ErrEnded
	case f.Make != nil && s.Spec.FirstRequest:
		return ErrExists
	case f.Make == nil && f.New && (!s.Spec.FirstRequest || s.Spec.Binding == nil && s.UID != f.underWay):
		return ErrExists
	}
	return nil
}

// claim gets a pod for the sandbox from the scheduler of its pool, or of a member of
// its env; s is nil if it is to be made. A binding that s has is replaced. ErrBindLost: look again.
func (f *flight) claim(s *v1alpha1.Sandbox) error { return f.claimWith(&binder{flight: f, sandbox: s}) }

func (f *flight) claimWith(b *binder) error {
	switch {
	case !f.MayClaim:
		return ErrExists
	case f.Env != "":
		return f.claimOfEnv(b, f.Env)
	}
	return f.claimFrom(b, f.Pool, nil, nil)
}

// errQueueFull: the pool's scheduler takes no more requests. It is an ErrNoCapacity too.
var errQueueFull = fmt.Errorf("%w: the pool's queue is full", ErrNoCapacity)

// claimFrom is claim from one pool. joined, if it is not nil, is called as soon as the
// request stands in the pool's queue. elsewhere, if it is not nil, is asked while the
// request waits and has no pod: true ends the wait with errElsewhere.
func (f *flight) claimFrom(b *binder, pool string, joined func(), elsewhere func() bool) error {
	scheduler, ok := f.a.o.Schedulers(f.Namespace, pool)
	if !ok {
		return ErrPoolNotFound
	}
	until, _ := f.ctx.Deadline()
	queued, leave := context.WithCancel(f.ctx)
	defer leave()
	request := &schedule.ClaimRequest{
		Ctx: queued, Deadline: until, ResultCh: make(chan schedule.ClaimResult, 1),
		Tenant: f.Team, SandboxID: f.ID, Env: f.Env, Bind: b.bind, Lost: b.lost, Unbind: b.unbind,
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
	if f.New && f.Env != "" && f.a.o.Asked != nil {
		f.a.o.Asked(f.Namespace, pool)
	}
	f.wait(b.replaces) // from here on b is the claim's
	if !scheduler.Enqueue(request) {
		return retry(errQueueFull)
	}
	if joined != nil {
		joined()
	}
	result, moves := f.await(scheduler, request, leave, elsewhere)
	switch {
	case moves && errors.Is(result.Err, context.Canceled) && f.ctx.Err() == nil: // it left the queue, and no claim had begun
		return errElsewhere
	case errors.Is(result.Err, schedule.ErrBindLost):
		return errLook
	case errors.Is(result.Err, schedule.ErrClaimOver): // the sandbox ends: wait for that as a follower
		return errLook
	case errors.Is(result.Err, context.Canceled) && f.ctx.Err() == nil: // it left the queue (await)
		return errLook
	case errors.Is(result.Err, context.Canceled) && errors.Is(f.ctx.Err(), context.DeadlineExceeded):
		return ErrNotReady // it left, and its time is over: the sandbox has a pod, which does not answer yet
	case result.Err != nil:
		return fromSchedule(result.Err)
	}
	f.a.o.Metrics.phase(phasePatch, time.Since(b.bound))
	if f.Env != "" {
		f.a.o.Metrics.ranked(rankOf(f.a.o.Members(f.Namespace, f.Env), pool))
	}
	if v1alpha1.PhaseOf(result.Pod) == v1alpha1.PodRunning {
		return f.finish(b.token, b.sandbox, result.Pod)
	}
	f.starts = time.Now()
	return errLook // the pod is starting: follow our own claim
}

// await returns the scheduler's answer. A flight that waits for stock leaves the
// queue when the sandbox has got a pod elsewhere, or has ended: it may never be
// its turn. It looks when the index has seen a change, and within a second for
// what the index had seen before the flight began, or while it had a pod that
// was lost then, and for what could not be read. While there is stock only the
// index makes it look: a burst that waits for its turn costs no read.
//
// elsewhere says to leave for another pool; moves is true then. It is asked while the
// flight has no pod, also when it has lost one: the binding to that one goes when the
// request leaves. It may have been too late: the result is that of a claim which has begun.
func (f *flight) await(scheduler *schedule.PoolScheduler, request *schedule.ClaimRequest, leave func(), elsewhere func() bool) (result schedule.ClaimResult, moves bool) {
	tick := time.NewTicker(followAfter)
	defer tick.Stop()
	for unseen := true; ; {
		select {
		case result := <-request.ResultCh:
			return result, false
		case <-f.wake:
			unseen = true
		case <-tick.C:
			if scheduler.Stocked() {
				continue // its turn comes soon, and what is written then finds out
			}
		}
		replaces := f.waiting.Load()
		if replaces != nil && elsewhere != nil && elsewhere() {
			leave()
			return <-request.ResultCh, true
		}
		if !unseen || replaces == nil {
			continue
		}
		settled, err := f.settledElsewhere(*replaces)
		if err != nil {
			tick.Reset(callTimeout) // thousands may wait: not each second
			continue
		}
		if f.waiting.Load() != replaces {
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
func (f *flight) settledElsewhere(replaces string) (bool, error) {
	s := &v1alpha1.Sandbox{}
	if err := f.readOnce(f.ctx, client.ObjectKey{Name: f.ID}, s); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	b := s.Spec.Binding
	return s.Spec.End != nil || s.DeletionTimestamp != nil || b != nil && b.ClaimID != replaces, nil
}

// wait notes that the flight waits for a pod.
func (f *flight) wait(replaces string) { f.waiting.Store(&replaces) }

// early is when a flight gives up, so that those who wait hear why before their
// own deadline.
func early(deadline time.Time) time.Time {
	margin := min(250*time.Millisecond, time.Until(deadline)/5)
	return deadline.Add(-max(margin, 0))
}
