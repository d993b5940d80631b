package address

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// pageSize bounds one page of a live list.
const pageSize = 500

// Load reads pods and Sandboxes with a consistent list and notes every claim
// that holds an address, or was fenced so lately that it may. live must read
// from the API server, not from a cache. Call it once, at the start of a
// leadership; after an error call it again.
//
// A fence that is not a minute older than the cooldown counts from now: it was noted by
// another process's clock.
func (l *Ledger) Load(ctx context.Context, live client.Reader) error {
	// Pods first: a claimed pod that is gone from the list by the time it is
	// read has left its address on a Sandbox, which is read afterwards.
	if err := EachPod(ctx, live, func(pod *corev1.Pod) {
		l.NoteClaim(pod.Annotations[v1alpha1.AnnotationClaim], pod.Labels[v1alpha1.LabelSandboxID], pod.Annotations[v1alpha1.AnnotationAddress])
	}); err != nil {
		return fmt.Errorf("reading which sandbox has which address: %w", err)
	}
	if err := EachSandbox(ctx, live, func(s *v1alpha1.Sandbox) {
		// A former claim's pod may run still, so fencedAt does not speak for it.
		claim, former := s.Status.AddressClaim, s.Spec.Binding == nil || s.Spec.Binding.ClaimID != s.Status.AddressClaim
		switch fenced := s.Status.FencedAt; {
		case fenced != nil && former:
		case fenced == nil:
			l.NoteClaim(claim, s.Name, s.Status.Address)
		case l.clock.Since(fenced.Time) < l.cooldown+time.Minute:
			l.NoteFenced(claim, s.Status.Address)
		default:
			l.NoteFencedInStatus(claim)
		}
	}); err != nil {
		return fmt.Errorf("reading which sandbox had which address: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = true
	return nil
}

// Loader is a Runnable that loads a ledger when its process becomes leader, and tries until
// it succeeds. What it reads must be newer than the election.
type Loader struct {
	Ledger *Ledger
	// Live reads from the API server.
	Live client.Reader
}

// Start returns once the ledger is loaded.
func (l *Loader) Start(ctx context.Context) error {
	for delays := backoff.Doubling(100*time.Millisecond, 5*time.Second); ; {
		err := l.Ledger.Load(ctx, l.Live)
		if err == nil {
			return nil
		}
		log.FromContext(ctx).Error(err, "loading the ledger of addresses: no pod turns idle until this succeeds")
		if !backoff.Sleep(ctx, delays.Step()) {
			return nil
		}
	}
}

// NeedLeaderElection returns true.
func (l *Loader) NeedLeaderElection() bool { return true }

// EachPod calls f with every pool pod of the cluster, in pages. f must not keep
// the pod.
func EachPod(ctx context.Context, live client.Reader, f func(*corev1.Pod)) error {
	for token := ""; ; {
		var page corev1.PodList
		if err := live.List(ctx, &page, client.HasLabels{v1alpha1.LabelPool}, client.Limit(pageSize), client.Continue(token)); err != nil {
			return fmt.Errorf("listing pool pods: %w", err)
		}
		for i := range page.Items {
			f(&page.Items[i])
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// EachSandbox calls f with every Sandbox, in pages. f must not keep it.
func EachSandbox(ctx context.Context, live client.Reader, f func(*v1alpha1.Sandbox)) error {
	for token := ""; ; {
		var page v1alpha1.SandboxList
		if err := live.List(ctx, &page, client.Limit(pageSize), client.Continue(token)); err != nil {
			return fmt.Errorf("listing sandboxes: %w", err)
		}
		for i := range page.Items {
			f(&page.Items[i])
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}
