package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials/logins"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/gateway/builds"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// openBuilds makes what builds templates; nil without a template registry.
func (g *gateway) openBuilds(c client.Client, s restapi.Sandboxes, t restapi.Templates, a *sandboxdclient.Agent, closed egress.Closed) (*builds.Builds, error) {
	if g.o.TemplateRegistry == "" {
		return nil, nil
	}
	registry, err := store.New(store.Options{
		Registry: g.o.TemplateRegistry, Keychain: logins.Keychain(g.o.TemplateCredentials), Bases: g.o.TemplateBases, Closed: closed,
	})
	if err != nil {
		return nil, err
	}
	return builds.New(builds.Options{
		API: c, Store: registry, Sandboxes: s, Agent: a, Gateway: g.o.Name, Log: g.o.Log, Sign: g.tokens.Upload,
		Callable: builderPods{g, sandboxdclient.NewPods(c, g.cache)}.callable,
		HasPool: func(namespace, name string) bool {
			pool, ok := g.index.Pool(namespace, name)
			return ok && !pool.Deleting
		},
		Resolve: func(namespace, name string) string {
			template, _ := t.Template(namespace, name)
			return template.Pool
		},
	}), nil
}

// builderPods reads the pods of builders.
type builderPods struct {
	g    *gateway
	pods sandboxdclient.Pods
}

// callable reads a sandbox of a namespace, and its pod, if sandboxd may be called there now.
func (p builderPods) callable(ctx context.Context, namespace, id string) (*v1alpha1.Sandbox, *corev1.Pod, error) {
	for delays := backoff.Doubling(50*time.Millisecond, time.Second); ; {
		token := p.pods.Begin(id)
		s, err := p.g.live.Sandbox(ctx, namespace, id)
		switch {
		case err != nil:
			return nil, nil, err
		case s == nil || s.Spec.Namespace != namespace || s.Spec.End != nil || s.DeletionTimestamp != nil || s.Spec.Binding == nil || s.Spec.Paused:
			return nil, nil, fmt.Errorf("the sandbox %s does not run", id)
		}
		pod, err := p.pods.Callable(ctx, token, s)
		if err == nil {
			return s, pod, nil
		}
		if !errors.Is(err, writes.ErrStale) || !backoff.Sleep(ctx, delays.Step()) {
			return nil, nil, err
		}
	}
}
