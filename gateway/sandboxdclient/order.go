package sandboxdclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// Errors of an order to sandboxd; ErrBusy is one too, and writes.ErrStale says that sandboxd has
// carried out a later order. After all but ErrNoFreezer and ErrStale the order
// may be repeated. Any other error is this gateway's own trouble: the order was not sent.
var (
	// ErrNoFreezer: the pod's sandboxd has no freezer, or accepts no signature of this
	// control plane. A missing init key is none: then the order was not sent.
	ErrNoFreezer = errors.New("the sandbox cannot be frozen")
	// ErrNotInitialised: sandboxd is not initialised yet, so that the sandbox has no
	// processes to freeze.
	ErrNotInitialised = errors.New("the sandbox is not initialised")
	// ErrRefused: sandboxd has answered that it did not carry the order out.
	ErrRefused = errors.New("the order was not carried out")
	// ErrNoAnswer: the call did not reach sandboxd, or sandboxd did not answer it in time.
	ErrNoAnswer = errors.New("sandboxd does not answer")
)

// numberHeader carries the number of an order.
const numberHeader = "Sandlane-Pause-Order"

// Freeze stops all processes of a sandbox, and Unfreeze continues them. number is the
// spec.pauseOrder of the Sandbox that asks for it: sandboxd refuses a lower number than the
// last one. Both may be repeated.
func (a *Agent) Freeze(ctx context.Context, id string, pod *corev1.Pod, number int64) error {
	_, err := a.order(ctx, id, pod, "freeze", number)
	return err
}

// Unfreeze undoes a Freeze with a lower number.
func (a *Agent) Unfreeze(ctx context.Context, id string, pod *corev1.Pod, number int64) error {
	_, err := a.order(ctx, id, pod, "unfreeze", number)
	return err
}

// Probe returns nil if a Freeze can be expected to succeed: sandboxd accepts this gateway's
// orders, has a freezer, and is initialised. It sends an Unfreeze.
func (a *Agent) Probe(ctx context.Context, id string, pod *corev1.Pod, number int64) error {
	status, err := a.order(ctx, id, pod, "unfreeze", number)
	if err == nil && status == http.StatusAccepted {
		return fmt.Errorf("probe the freezer of pod %s: %w", pod.Name, ErrNotInitialised)
	}
	return err
}

func (a *Agent) order(ctx context.Context, id string, pod *corev1.Pod, order string, number int64) (status int, err error) {
	if !v1alpha1.Freezable(&pod.Spec) {
		return 0, fmt.Errorf("%w: no sandboxd runs alone in pod %s, or the pod has a liveness probe", ErrNoFreezer, pod.Name)
	}
	addr, err := netip.ParseAddr(v1alpha1.RoutableAddress(pod))
	if err != nil {
		return 0, fmt.Errorf("pod %s cannot be reached: %w", pod.Name, err)
	}
	c := a.connect(addr)
	defer c.close()
	header := http.Header{}
	header.Set(sandboxHeader, id)
	header.Set(numberHeader, strconv.FormatInt(number, 10))
	err = a.signBy(ctx, c, pod, header, func(nonce string) []byte {
		return orderMessage(order, string(pod.UID), nonce, id, number)
	})
	if err == nil {
		status, _, err = c.call(ctx, http.MethodPost, "/"+order, header, nil)
	}
	if errors.Is(err, errUnsigned) && !errors.Is(err, errNoKey) {
		err = fmt.Errorf("%w: %w", ErrNoFreezer, err)
	}
	if err != nil {
		return 0, fmt.Errorf("%s pod %s: %w", order, pod.Name, err)
	}
	if err := orderError(status); err != nil {
		return 0, fmt.Errorf("%s pod %s: status %d: %w", order, pod.Name, status, err)
	}
	return status, nil
}

// orderError returns the error for the status of sandboxd's answer to an order.
func orderError(status int) error {
	switch status {
	case http.StatusConflict:
		return writes.ErrStale // it has carried out a later order
	case http.StatusLocked:
		return ErrBusy
	case http.StatusPreconditionFailed:
		return ErrNotInitialised
	case http.StatusNotImplemented, http.StatusUnauthorized, http.StatusForbidden:
		// sandboxd has no freezer, or does not accept the signature.
		return ErrNoFreezer
	}
	if status < 300 {
		return nil
	}
	return ErrRefused
}

// orderMessage returns the message that is signed for an order; sandboxd/access builds the
// same message to verify the signature.
func orderMessage(order, podUID, nonce, sandbox string, number int64) []byte {
	return fmt.Appendf(nil, "sandlane %s 1\n%q\n%q\n%q\n%d\n", order, podUID, nonce, sandbox, number)
}
