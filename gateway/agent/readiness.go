package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/kubeclient/ending"
)

const (
	// endTimeout bounds the write that ends a sandbox whose pod is of no use.
	endTimeout = 5 * time.Second
	// freshFor is how long after its claim a pod that refuses counts as one that never
	// served its sandbox, unless the sandbox's record says that it did.
	freshFor = time.Minute
	// maxRefusals bounds the claims whose refusal is remembered as logged.
	maxRefusals = 1024
)

// Readiness initialises sandboxd in pods that requests claim, and knows for which
// claims that is done.
//
// sandboxd answers no request before it is initialised. The gateway that claims a pod does it;
// if that gateway dies in between, the next request finds a running pod with a
// sandboxd that answers nothing. So no gateway takes such a pod for running before it
// has initialised it itself, once: the repetition is the same and changes nothing.
// Sandboxes of the REST API are left alone: their Create alone knows their
// environment, and no other process their ID before it has returned. One whose Create
// died answers nothing until its end time.
//
// A pod that refuses is of no use, and its sandbox is ended, if it has just been
// claimed. One that has run accepted the same from another gateway, or from an earlier
// process of this one: either this gateway has changed (the seed of tokens was lost, say)
// or what listens on the port has, and other gateways may serve it still. It is left
// alone, and not ready here.
type Readiness struct {
	agent  *Agent
	api    client.Client
	log    *slog.Logger
	done   *lru.Cache[string, struct{}] // claim IDs
	logged *lru.Cache[string, struct{}] // claim IDs whose refusal was logged
}

// NewReadiness makes one that remembers size initialised claims.
func NewReadiness(a *Agent, api client.Client, size int, log *slog.Logger) (*Readiness, error) {
	done, err := lru.New[string, struct{}](size)
	if err != nil {
		return nil, fmt.Errorf("remember initialised claims: %w", err)
	}
	logged, err := lru.New[string, struct{}](maxRefusals)
	if err != nil {
		return nil, fmt.Errorf("remember refused claims: %w", err)
	}
	return &Readiness{agent: a, api: api, log: log, done: done, logged: logged}, nil
}

// concerns reports whether the pod of a sandbox has to be initialised by the
// first gateway that meets it.
func concerns(id string, sandboxd bool) bool { return sandboxd && !v1alpha1.GeneratedID(id) }

// Pending reports whether a running pod has yet to be initialised by this gateway.
func (r *Readiness) Pending(id, claim string, sandboxd bool) bool {
	return concerns(id, sandboxd) && !r.done.Contains(claim)
}

// hasRun reports whether the sandbox may have been in use already. The record says
// so once the controller has seen it run; the pod's claim time, if the controller is
// behind. What cannot be told counts as yes.
func hasRun(s *v1alpha1.Sandbox, pod *corev1.Pod) bool {
	claimed, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	return s.Status.StartedAt != nil || err != nil || time.Since(claimed) > freshFor
}

// Meet initialises the sandboxd of a pod that runs, by what this gateway's watches
// show of both objects: their names and UIDs, the sandbox's pool and network, the
// pod's claim, address and what it is signed with. A refusal is returned and not
// judged: the claim's age is not known here.
func (r *Readiness) Meet(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	if !r.Pending(s.Name, claim, v1alpha1.RunsSandboxd(&pod.Spec)) {
		return nil
	}
	err := r.agent.Init(ctx, s, pod, nil)
	if err == nil {
		r.done.Add(claim, struct{}{})
	}
	return err
}

// Ready is the activator's Ready (activation.Ready). A sandbox that was claimed just now
// and whose pod refuses is ended, so that its record says why.
func (r *Readiness) Ready(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	err := r.Meet(ctx, s, pod)
	switch {
	case errors.Is(err, activation.ErrUnusable) && hasRun(s, pod):
		if logged, _ := r.logged.ContainsOrAdd(claim, struct{}{}); !logged {
			r.log.Error("a sandbox that has run refuses this gateway; its requests are answered with 503 here. Was the Secret of the tokens' seed replaced?",
				"sandbox", s.Name, "pod", pod.Name, "reason", err)
		}
		return fmt.Errorf("%w: %s", activation.ErrNotReady, err.Error()) // not ErrUnusable: it is not ended
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
