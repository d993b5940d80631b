package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/activation"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/ending"
)

// endTimeout bounds the write that ends a sandbox whose pod is of no use.
const endTimeout = 5 * time.Second

// readiness initialises sandboxd in pods that requests claim, and knows for which
// claims that is done.
//
// sandboxd answers nobody before it is initialised. Whoever claims a pod does it;
// if that gateway dies in between, the next request finds a running pod with a
// deaf sandboxd. So no gateway takes such a pod for running before it has
// initialised it itself, once: the repetition says the same and changes nothing.
// Sandboxes of the REST API are left alone: their Create alone knows their
// environment, and nobody else their ID before it has returned. One whose Create
// died stays deaf until its end time.
type readiness struct {
	agent *agent
	api   client.Client
	log   *slog.Logger
	done  *lru.Cache[string, struct{}] // claim IDs
}

func newReadiness(a *agent, api client.Client, size int, log *slog.Logger) (*readiness, error) {
	done, err := lru.New[string, struct{}](size)
	if err != nil {
		return nil, fmt.Errorf("remember initialised claims: %w", err)
	}
	return &readiness{agent: a, api: api, log: log, done: done}, nil
}

// concerns reports whether the pod of a sandbox has to be initialised by whoever
// meets it first.
func concerns(id string, sandboxd bool) bool { return sandboxd && !v1alpha1.GeneratedID(id) }

// pending reports whether a running pod has yet to be initialised by this gateway.
func (r *readiness) pending(id, claim string, sandboxd bool) bool {
	return concerns(id, sandboxd) && !r.done.Contains(claim)
}

// ready is the activator's Ready. A sandbox whose pod refuses is ended, so that
// its record says why.
func (r *readiness) ready(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	if !r.pending(s.Name, claim, v1alpha1.RunsSandboxd(&pod.Spec)) {
		return nil
	}
	err := r.agent.init(ctx, s, pod, nil)
	switch {
	case err == nil:
		r.done.Add(claim, struct{}{})
	case errors.Is(err, activation.ErrUnusable):
		r.log.Warn("sandbox is ended", "sandbox", s.Name, "reason", err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		end := ending.EndSandbox(ctx, r.api, s.Name, v1alpha1.EndFailed, err.Error(), ending.OfClaim(claim), ending.OfUID(s.UID))
		if end != nil && !errors.Is(end, ending.ErrMoved) {
			return fmt.Errorf("%s; and %w", err.Error(), end) // not ErrUnusable: to be tried again
		}
	}
	return err
}
