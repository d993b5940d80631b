package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// attemptTimeout bounds one write of a claim.
	attemptTimeout = 5 * time.Second
	// settleTimeout bounds how long an ambiguous claim is pursued, and an Unbind.
	settleTimeout = 15 * time.Second
	// conflictLimit is how often a write that lost the API server's own races is
	// sent again to one pod.
	conflictLimit = 5
	// refusalLimit is the number of idle pods that refuse one request's claim from which
	// on it is taken for a bug. Each pod before is written to stopping.
	refusalLimit = 2
	// retryMin and retryMax bound the waits between tries where the API server
	// named none.
	retryMin, retryMax = 50 * time.Millisecond, time.Second
)

// errUnsettled: the claim may have been applied, or still be, and the API
// server did not let us find out.
var errUnsettled = errors.New("claim could not be settled")

// errStopped: no other claim took the pod; this scheduler wrote it to stopping.
var errStopped = errors.New("stopped")

// attempt is the try to get one pod for one entry; both belong to it alone until
// conclude. Its steps, which this file tells in order: bind, land, settle, conclude.
// What happens when one fails:
//
//	Bind: writes.ErrStale        pod given back, writes.ErrStale
//	Bind: any other error    pod given back, that error
//	PATCH: 422 with causes   pod given back, ErrInvalid
//	PATCH: 422 without       live read: our claim = success, or ErrClaimOver if its
//	                         pod is ending (the binding stays); taken = next pod;
//	                         idle = settled as below, the second time ErrRefused
//	PATCH: 404               next pod
//	PATCH: 409               the same pod again, a few times (API server's own races),
//	                         then settled as below
//	PATCH: 429               waited out, Retry-After honoured, the same pod again
//	PATCH: 403               pod given back, ErrForbidden
//	PATCH: not sent          waited out, the same pod again
//	PATCH: anything else     ambiguous: the pod is written to stopping, testing its
//	                         UID and phase idle. Applied: the claim can no longer
//	                         land, next pod. Test failed: read; our claim as
//	                         above, else next pod. Not to be settled: ErrUnavailable, and the
//	                         binding stays for the next request.
//	answer without an        next pod; once Bind has named that one, or Unbind was
//	address to be reached at called, the pod is ended (testing the claim)
//
// A claim that this scheduler did not apply may have been applied by another process
// that saw the binding. So a request that fails for good after Bind succeeded has
// its Unbind called only when the pod is known to be taken, gone or stopped, or
// the claim is ErrInvalid. Else the binding stays: others complete it, or replace
// it when they find its pod lost.
type attempt struct {
	*entry
	rec   *podRecord
	claim Claim // set by bind
}

// run ends with the entry answered or back in the queue, and the pod given back or
// cooling.
func (a *attempt) run() {
	if err := a.unwanted(); err != nil {
		a.giveBack(true)
		a.fail(err)
		return
	}
	if err := a.bind(); err != nil {
		a.s.series.outcome(outcomeError)
		a.giveBack(true)
		a.fail(err)
		return
	}
	failpoint.Hit("schedule/bound") // the binding stands, the PATCH is not sent
	pod, err := a.land()
	if err == nil {
		failpoint.Hit("schedule/claimed") // the claim is on the pod, the request is not answered
	}
	if a.leavesIdlePod(err) {
		// Every process that saw the binding may still send the claim.
		pod, err = a.settle(err)
	}
	a.conclude(pod, err)
}

// unwanted returns why the attempt must not begin, nil to begin: since the request was
// given the pod it was answered, or its client has left. Nothing is written then.
func (a *attempt) unwanted() error {
	if err := a.stopReason(); err != nil {
		return err
	}
	if a.Ctx.Err() != nil {
		return a.leftError()
	}
	return nil
}

// bind makes the claim and runs the request's Bind for the pod. A pod that may not
// be reached is ended once the sandbox no longer names it: one that is stopped while
// the sandbox does ends the sandbox.
func (a *attempt) bind() (err error) {
	if a.claim, err = a.Opts.claim(a.rec.shape); err != nil {
		return err
	}
	a.claim.SandboxID, a.claim.ClaimID, a.claim.Env, a.claim.Rules = a.SandboxID, a.ClaimID, a.Env, a.Rules
	a.claim.Namespace, a.claim.PodName, a.claim.PodUID = a.s.namespace, a.rec.name, a.rec.uid
	if a.Bind == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), a.Deadline)
	defer cancel()
	pod := a.claim.bindable()
	switch err = a.Bind(ctx, pod); {
	case err == nil:
		a.bound = pod
		a.endUnroutable()
		return nil
	case errors.Is(err, writes.ErrStale):
		a.bound = nil // the sandbox's present owner has replaced it
		a.endUnroutable()
	}
	return fmt.Errorf("bind pod %s/%s: %w", a.s.namespace, a.rec.name, err)
}

// bindable is the pod as Bind gets it.
func (c Claim) bindable() *corev1.Pod {
	pod := c.object()
	pod.UID = c.PodUID
	pod.Labels = map[string]string{v1alpha1.LabelSandboxID: c.SandboxID}
	pod.Annotations = map[string]string{v1alpha1.AnnotationClaim: c.ClaimID}
	return pod
}

// land gets the claim onto the pod, or finds out that it did not. Every process that
// saw the binding may send the same claim, so that it is not on the pod is certain
// only with ErrPodTaken, ErrPodGone and ErrInvalid. Each write has a timeout of
// its own; waits end when the request is answered or the scheduler stops.
func (a *attempt) land() (*corev1.Pod, error) {
	conflicts := 0
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		if err := a.stopReason(); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		sent := time.Now()
		pod, v, err := apply(ctx, a.s.client, a.claim)
		cancel()
		a.s.learn(sent, v)
		switch v {
		case writes.Ambiguous:
			a.s.series.outcome(outcomeAmbiguous)
			return a.settle(err)
		case writes.Conflict:
			if conflicts++; conflicts >= conflictLimit {
				return nil, err
			}
		case writes.Throttled, writes.NotSent:
			if err := a.sleep(backoff.Asked(err, delays.Step()), err); err != nil {
				return nil, err
			}
		default:
			return pod, err
		}
	}
}

// leavesIdlePod reports whether the entry, after err, is to leave an idle pod and take the
// next one.
func (a *attempt) leavesIdlePod(err error) bool {
	switch {
	case errors.Is(err, errUnsettled): // tried already
	case errors.Is(err, ErrRefused):
		a.refusals++
		return a.refusals < refusalLimit && a.stopReason() == nil
	case errors.Is(err, errConflict):
		return a.stopReason() == nil
	}
	return false
}

// settle resolves a PATCH that may have been applied, or may still be, by a
// write: once the pod is stopping no claim can land on it.
func (a *attempt) settle(cause error) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		pod, err := settleOnce(ctx, a.s.client, a.claim)
		switch {
		case err == nil, errors.Is(err, ErrPodTaken), errors.Is(err, ErrPodGone), errors.Is(err, ErrClaimOver), errors.Is(err, ErrUnroutable):
			return pod, err
		case errors.Is(err, ErrForbidden), errors.Is(err, ErrInvalid), !backoff.Sleep(ctx, backoff.Asked(err, delays.Step())):
			return nil, fmt.Errorf("%w: %w: %w", ErrUnavailable, errUnsettled, errors.Join(cause, err))
		}
	}
}

// settleOnce writes the pod to stopping if it is idle, else reads which claim it has.
func settleOnce(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := StopUnclaimed(ctx, c, claim)
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s: %w: %w", claim.doing(), errStopped, ErrPodTaken)
	case errors.Is(err, ErrRefused):
		pod, _, err := readOwner(ctx, c, claim)
		return pod, err
	}
	return nil, err
}

// conclude acts on how the attempt went: the pod is given back or kept reserved,
// and the entry answered or put in the queue again.
func (a *attempt) conclude(pod *corev1.Pod, err error) {
	a.s.series.outcome(outcomeOf(err))
	switch {
	case err == nil:
		a.cool()
		a.succeed(pod)
	case errors.Is(err, errUnsettled):
		// The claim may be on the pod, so the binding has to stay.
		a.cool()
		a.bound = nil
		a.fail(err)
	case errors.Is(err, errStopped):
		a.cool()
		a.again()
	case errors.Is(err, ErrPodTaken), errors.Is(err, ErrPodGone):
		a.catchUp()
		a.again()
	case errors.Is(err, ErrClaimOver):
		// Whichever process sent the claim, the sandbox may have run there. Another pod
		// would start it again, empty, without notice. So the binding stays, and the
		// sandbox waits for its end.
		a.cool()
		a.bound = nil
		a.fail(err)
	case errors.Is(err, ErrUnroutable):
		a.s.log.Warn("claimed pod has no routable address; to be ended", "pod", a.claim.PodName)
		a.cool()
		if a.unroutable = &a.claim; a.Bind == nil {
			a.endUnroutable()
		}
		a.again()
	case errors.Is(err, ErrInvalid): // on whichever pod, from whichever process
		a.giveBack(true)
		a.fail(err)
	default: // ErrRefused, errConflict, ErrForbidden, ErrShutdown, errAnswered
		if errors.Is(err, ErrRefused) {
			a.s.log.Error("idle pods refuse claims", "pod", a.claim.PodName)
		}
		// Not applied by us, but another process that saw the binding may have sent the
		// claim, or may yet, and then the sandbox runs. So the binding stays, and the
		// pod is offered to others last.
		a.giveBack(a.bound == nil && !errors.Is(err, ErrRefused))
		a.bound = nil
		a.fail(err)
	}
}

// succeed answers with the pod. A claim that came too late for its request
// stands if a sandbox is bound to the pod; else no sandbox will use it, and it is
// ended.
func (a *attempt) succeed(pod *corev1.Pod) {
	a.bound = nil
	a.s.mu.Lock()
	delivered := a.answer(ClaimResult{Pod: pod})
	a.s.mu.Unlock()
	if !delivered && a.Bind == nil {
		a.s.end(a.claim)
	}
}
