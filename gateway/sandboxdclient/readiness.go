package sandboxdclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

const (
	// endTimeout bounds the write that ends a sandbox whose pod cannot be initialised.
	endTimeout = 5 * time.Second
	// neverRanFor is how long after its claim a pod that refuses counts as one that has
	// never served its sandbox, unless the sandbox's status says that it has.
	neverRanFor = time.Minute
	// maxLogged bounds the claims whose refusal is remembered as logged.
	maxLogged = 1024
)

// Readiness initialises sandboxd in pods that requests claim, and remembers the claims for
// which this gateway has done so. It is safe for concurrent use.
//
// # Why every gateway initialises
//
// sandboxd answers no request before it is initialised. The gateway that claims a pod
// initialises it. If that gateway dies in between, the next request finds a running pod
// whose sandboxd answers nothing. So each gateway takes a pod for running only after it has
// initialised the pod itself, once; a second /init with the same content changes nothing.
//
// Readiness leaves sandboxes of the REST API alone: only their create knows their
// environment, and no client knows their ID before the create has returned. A sandbox whose
// create died answers nothing until its end time.
//
// # What a refusal means
//
// If a pod that was claimed just now refuses, its sandbox is ended, since no gateway can
// use that pod. A pod whose sandbox has run accepted the same /init from another gateway or
// from an earlier process of this one. So either this gateway has changed (it has lost the
// seed of the tokens, for example), or another program listens on the pod's port; other
// gateways may still serve the sandbox. Such a sandbox is not ended, but this gateway does
// not route to it.
type Readiness struct {
	agent       *Agent
	api         client.Client
	log         *slog.Logger
	initialised *lru.Cache[string, struct{}] // claim IDs
	logged      *lru.Cache[string, struct{}] // claim IDs whose refusal was logged
}

// NewReadiness makes a Readiness that remembers size initialised claims.
func NewReadiness(a *Agent, api client.Client, size int, log *slog.Logger) (*Readiness, error) {
	initialised, err := lru.New[string, struct{}](size)
	if err != nil {
		return nil, fmt.Errorf("remember initialised claims: %w", err)
	}
	logged, err := lru.New[string, struct{}](maxLogged)
	if err != nil {
		return nil, fmt.Errorf("remember refused claims: %w", err)
	}
	return &Readiness{agent: a, api: api, log: log, initialised: initialised, logged: logged}, nil
}

// Pending reports whether this gateway still has to initialise the running pod of a sandbox.
// sandboxd says whether the pod runs sandboxd. A sandbox with a generated ID is one of the
// REST API, whose create initialises it.
func (r *Readiness) Pending(id, claim string, sandboxd bool) bool {
	return sandboxd && !v1alpha1.GeneratedID(id) && !r.initialised.Contains(claim)
}

// hasRun reports whether the sandbox may have been in use already. Its status says so once
// the controller has seen it run; if the controller is late, the pod's claim time does. A
// claim time that cannot be read counts as yes.
func hasRun(s *v1alpha1.Sandbox, pod *corev1.Pod) bool {
	claimed, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	return s.Status.StartedAt != nil || err != nil || time.Since(claimed) > neverRanFor
}

// ReadyKnown is Ready by what this gateway's watches show of a sandbox that runs. It returns a
// refusal as it is, since the answer does not have the age of the claim.
func (r *Readiness) ReadyKnown(ctx context.Context, id string, a routing.Answer) error {
	return r.initOnce(ctx, claimedPod{
		ID: id, UID: a.UID, Template: cmp.Or(a.Env, a.Pool), Unsecured: a.Unsecured,
		ClaimID: a.ClaimID, PodName: a.PodName, PodUID: types.UID(a.PodUID), Addr: a.Route.Addr, Sandboxd: a.Sandboxd, InitKey: a.InitKey,
	})
}

// initOnce initialises the sandboxd of a running pod, unless this gateway has done so for
// the pod's claim.
func (r *Readiness) initOnce(ctx context.Context, to claimedPod) error {
	if !r.Pending(to.ID, to.ClaimID, to.Sandboxd) {
		return nil
	}
	err := r.agent.init(ctx, to, nil, nil)
	if err == nil {
		r.initialised.Add(to.ClaimID, struct{}{})
	}
	return err
}

// Ready is an activation.Ready: initOnce, and a judgement of a refusal. It ends a sandbox
// that was claimed just now and whose pod refuses, so that the sandbox's record has the
// reason.
func (r *Readiness) Ready(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	to := claimed(s, pod)
	claim := to.ClaimID
	err := r.initOnce(ctx, to)
	switch hopeless := activation.VerdictOf(err) == activation.EndSandbox; {
	case hopeless && hasRun(s, pod):
		if logged, _ := r.logged.ContainsOrAdd(claim, struct{}{}); !logged {
			r.log.Error("a sandbox that has run refuses this gateway; its requests are answered with 503 here. Was the Secret of the tokens' seed replaced?",
				"sandbox", s.Name, "pod", pod.Name, "reason", err)
		}
		return activation.FailRequest.With(err)
	case hopeless:
		r.log.Warn("sandbox is ended", "sandbox", s.Name, "reason", err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		end := writes.EndSandbox(ctx, r.api, s.Name, v1alpha1.EndFailed, err.Error(), writes.OfClaim(claim), writes.OfUID(s.UID))
		if end != nil && !errors.Is(end, writes.ErrStale) {
			return activation.TryLater.With(fmt.Errorf("%w; and %w", err, end))
		}
	}
	return err
}
