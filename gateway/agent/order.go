package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What an order to a sandboxd fails with, beside what may pass.
var (
	// ErrNoFreezer: the pod's sandboxd cannot freeze it, and never could.
	ErrNoFreezer = errors.New("the sandbox cannot be frozen")
	// ErrSuperseded: sandboxd has carried out an order of a later generation.
	ErrSuperseded = errors.New("a later order was carried out")
)

// generationHeader carries the generation of an order.
const generationHeader = "Sandlane-Generation"

// Freeze stops all that runs in the pod of a sandbox, and Unfreeze continues it.
// generation is that of the Sandbox which says so: sandboxd refuses older ones. Both may
// be repeated.
func (a *Agent) Freeze(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	return a.order(ctx, id, pod, "freeze", generation)
}

// Unfreeze undoes a Freeze of an earlier generation.
func (a *Agent) Unfreeze(ctx context.Context, id string, pod *corev1.Pod, generation int64) error {
	return a.order(ctx, id, pod, "unfreeze", generation)
}

func (a *Agent) order(ctx context.Context, id string, pod *corev1.Pod, order string, generation int64) error {
	if !v1alpha1.Freezable(&pod.Spec) {
		return fmt.Errorf("%w: pod %s has no sandboxd that is alone in it, or a liveness probe", ErrNoFreezer, pod.Name)
	}
	addr, err := netip.ParseAddr(v1alpha1.FencedAddress(pod))
	if err != nil {
		return fmt.Errorf("pod %s cannot be reached: %w", pod.Name, err)
	}
	c := a.connect(addr)
	defer c.close()
	header := http.Header{}
	header.Set(sandboxHeader, id)
	header.Set(generationHeader, strconv.FormatInt(generation, 10))
	err = a.signBy(ctx, c, pod, header, func(nonce string) []byte {
		return orderMessage(order, string(pod.UID), nonce, id, generation)
	})
	status := 0
	if err == nil {
		status, _, err = c.call(ctx, http.MethodPost, "/"+order, header, nil)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s pod %s: %w", order, pod.Name, err)
	case status < 300:
		return nil
	case status == http.StatusConflict:
		return fmt.Errorf("%s pod %s: %w", order, pod.Name, ErrSuperseded)
	case status == http.StatusNotImplemented:
		return fmt.Errorf("%w: sandboxd of pod %s has no freezer", ErrNoFreezer, pod.Name)
	}
	return fmt.Errorf("%s pod %s: status %d", order, pod.Name, status)
}

// orderMessage is what is signed; sandboxd/access builds the same.
func orderMessage(order, podUID, nonce, sandbox string, generation int64) []byte {
	return fmt.Appendf(nil, "sandlane %s 1\n%q\n%q\n%q\n%d\n", order, podUID, nonce, sandbox, generation)
}
