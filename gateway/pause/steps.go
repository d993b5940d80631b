package pause

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// takeStep takes the next step of a sandbox with a pod that was read or written just now: the
// call that has written a pause or a resume takes it at once, and the controller has it
// repeated until the freezer has answered. Each step may be taken by several gateways at
// once, and again after any failure. ErrStale means that the sandbox has changed since.
//
//	step     taken by                is done when               if it fails
//	Freeze   Pause, EnforcePause     the freezer has answered   Pause undoes the pause;
//	                                                            else the controller has
//	                                                            it repeated
//	Save     these, and what         one write names the        as Freeze; with
//	         resumes the sandbox     Checkpoint and gives up    ErrNotSaved it is frozen
//	         meanwhile               the pod
//	Bind     activation, as a claim  the write that binds it    503, nothing is written
//	         for any sandbox         removes paused
//	Restore  activation's Ready, by  the files are there,       one write takes the
//	         package files           /init is answered, and     resume back and gives up
//	                                 restore is removed         the pod
//	Thaw     Resume, Wake,           the freezer has answered   no gateway routes to it;
//	         EnsureAwake,                                       the controller has it
//	         EnforcePause                                       repeated
func (p *Pauser) takeStep(ctx context.Context, s *v1alpha1.Sandbox) error {
	switch v1alpha1.NextPauseStep(s) {
	case v1alpha1.PauseStepFreeze:
		return p.freeze(ctx, s)
	case v1alpha1.PauseStepSave:
		if err := p.freeze(ctx, s); err != nil {
			return err
		}
		if err := p.hibernate(ctx, s); err != nil {
			return fmt.Errorf("%w: %w", controlplane.ErrNotSaved, err)
		}
	case v1alpha1.PauseStepThaw: // sandboxd stops reading the files at this order
		if err := p.orderBusy(ctx, s, p.orders.Unfreeze); err != nil {
			return err
		}
		failpoint.Hit("pause/thawed") // all runs, no client has an answer yet
	case v1alpha1.PauseStepBind, v1alpha1.PauseStepRestore: // it is no freezer's
		return writes.ErrStale
	}
	return nil
}

func (p *Pauser) freeze(ctx context.Context, s *v1alpha1.Sandbox) error {
	if err := p.orderBusy(ctx, s, p.orders.Freeze); err != nil { // a snapshot may be under way
		return err
	}
	failpoint.Hit("pause/frozen") // all is stopped, no client has an answer yet
	return nil
}

// sendOrder sends one order to the freezer of a pod; it is a method of Orders.
type sendOrder func(ctx context.Context, id string, pod *corev1.Pod, number int64) error

// order sends an order with the sandbox's pauseOrder to the freezer of its pod, under the
// conditions of every call to a pod: the route cache still admits the pod's address, and
// the call is short. It repeats the order after errors that may pass. ErrStale is sandboxd's
// answer: it has carried out a later order.
func (p *Pauser) order(ctx context.Context, s *v1alpha1.Sandbox, send sendOrder) error {
	delays := backoff.Doubling(10*time.Millisecond, time.Second)
	for tries, moved := 0, 0; ; {
		pod, err := p.pods.Callable(ctx, p.pods.Begin(s.Name), s)
		if errors.Is(err, writes.ErrStale) {
			// The cause may be that the watch has just shown this gateway's own write, so this
			// does not count as a try.
			if moved++; moved > movesAtOnce && !backoff.Sleep(ctx, delays.Step()) {
				return fmt.Errorf("the route to the sandbox keeps changing: %w", ctx.Err())
			}
			continue
		}
		if err == nil {
			err = sendOnce(ctx, s, pod, send)
		}
		if tries++; err == nil || final(err) || tries == orderTries || !backoff.Sleep(ctx, delays.Step()) {
			return err
		}
	}
}

// orderBusy is order, tried for longer while sandboxd reads the sandbox's files.
func (p *Pauser) orderBusy(ctx context.Context, s *v1alpha1.Sandbox, send sendOrder) error {
	err := p.order(ctx, s, send)
	for range busyTries {
		if !errors.Is(err, sandboxdclient.ErrBusy) || !backoff.Sleep(ctx, busyWait) {
			break
		}
		err = p.order(ctx, s, send)
	}
	return err
}

// final reports whether an order that failed with err would fail again.
func final(err error) bool {
	return slices.ContainsFunc([]error{sandboxdclient.ErrNoFreezer, writes.ErrStale, sandboxdclient.ErrPodGone, ErrNotRunning, ErrUnsupported},
		func(one error) bool { return errors.Is(err, one) })
}

func sendOnce(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, send sendOrder) error {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	return send(ctx, s.Name, pod, s.Spec.PauseOrder)
}
