package sandboxdclient

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
)

// ErrPodGone says that no pod backs the sandbox, or its pod is ending. The controller ends such a
// sandbox.
var ErrPodGone = errors.New("the sandbox's pod is gone")

// Pods reads the pods of sandboxes from the API server, for calls to their sandboxd. Safe
// for concurrent use.
type Pods struct {
	api   client.Reader
	cache *routecache.Cache
}

// NewPods makes Pods. api must not read from a cache.
func NewPods(api client.Reader, cache *routecache.Cache) Pods { return Pods{api, cache} }

// Begin returns the token that Callable needs. Call it before you read the sandbox.
func (p Pods) Begin(id string) routecache.Token { return p.cache.Begin(id) }

// Backing reads the pod that backs a sandbox and has not ended; ErrPodGone if there is none.
// The pod need not be callable.
func (p Pods) Backing(ctx context.Context, s *v1alpha1.Sandbox) (*corev1.Pod, error) {
	if s.Spec.Binding == nil {
		return nil, ErrPodGone
	}
	pod := &corev1.Pod{}
	err := p.api.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Binding.PodName}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ErrPodGone
	case err != nil:
		return nil, fmt.Errorf("reading the pod of sandbox %s: %w", s.Name, err)
	case !v1alpha1.Backs(pod, s) || pod.DeletionTimestamp != nil || v1alpha1.Finished(pod):
		return nil, ErrPodGone
	}
	return pod, nil
}

// Callable reads the pod that backs a sandbox, if it may be called now: the pod's address
// belongs to the sandbox, and the route cache admits the route to it. A writes.ErrStale means
// that the sandbox or the pod may have changed since Begin. A call that changes anything
// must end within two seconds, because the address may serve another sandbox eight seconds
// after its fence (docs/design/design.md 4.2).
func (p Pods) Callable(ctx context.Context, token routecache.Token, s *v1alpha1.Sandbox) (*corev1.Pod, error) {
	pod, err := p.Backing(ctx, s)
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(v1alpha1.RoutableAddress(pod))
	if err != nil {
		return nil, fmt.Errorf("%w: it has no address", ErrPodGone)
	}
	rv, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("pod %s: resourceVersion: %w", pod.Name, err)
	}
	if !p.cache.Admits(token, &routecache.Route{SandboxID: s.Name, Addr: addr, PodRV: rv}) {
		return nil, writes.ErrStale
	}
	return pod, nil
}
