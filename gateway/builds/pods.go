package builds

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// Live reads a sandbox from the API server; nil if there is none. *index.Live implements it.
type Live interface {
	Sandbox(ctx context.Context, key, id string) (*v1alpha1.Sandbox, error)
}

// BuilderPods reads builders and their pods.
type BuilderPods struct {
	Live Live
	Pods sandboxdclient.Pods
}

// Callable implements Pods.
func (p BuilderPods) Callable(ctx context.Context, namespace, id string) (*v1alpha1.Sandbox, *corev1.Pod, error) {
	for delays := backoff.Doubling(50*time.Millisecond, time.Second); ; {
		token := p.Pods.Begin(id)
		s, err := p.Live.Sandbox(ctx, namespace, id)
		switch {
		case err != nil:
			return nil, nil, err
		case s == nil || s.Spec.Namespace != namespace || s.Spec.End != nil || s.DeletionTimestamp != nil || s.Spec.Binding == nil || s.Spec.Paused:
			return nil, nil, fmt.Errorf("the sandbox %s does not run", id)
		}
		pod, err := p.Pods.Callable(ctx, token, s)
		if err == nil {
			return s, pod, nil
		}
		if !errors.Is(err, writes.ErrStale) || !backoff.Sleep(ctx, delays.Step()) {
			return nil, nil, err
		}
	}
}
