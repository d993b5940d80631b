package address

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// IndexAddress is the field index on pods (see Shows) and Sandboxes
// (status.address).
const IndexAddress = "address"

// AddIndexes registers IndexAddress. Call it once per manager, before it starts.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, IndexAddress, func(o client.Object) []string {
		return Shows(o.(*corev1.Pod))
	}); err != nil {
		return fmt.Errorf("indexing pods by address: %w", err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.Sandbox{}, IndexAddress, func(o client.Object) []string {
		if a := o.(*v1alpha1.Sandbox).Status.Address; a != "" {
			return []string{a}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing sandboxes by address: %w", err)
	}
	return nil
}

// Rule answers whether a warming pod's address may serve a claim.
type Rule struct {
	// Cache reads pods and Sandboxes, with the indexes of AddIndexes.
	Cache  client.Reader
	Ledger *Ledger
	// Clock is nil for the real one.
	Clock clock.PassiveClock
}

// Check judges the pod's IP. The pod must come from the same cache. An error
// means unknown: not free.
func (r *Rule) Check(ctx context.Context, pod *corev1.Pod) (Verdict, error) {
	ip := pod.Status.PodIP
	if ip == "" {
		return busy("the pod has no address yet", pollBusy), nil
	}
	// Pods, then the ledger, then Sandboxes: see the package comment.
	var pods corev1.PodList
	if err := r.Cache.List(ctx, &pods, client.MatchingFields{IndexAddress: ip}, client.UnsafeDisableDeepCopy); err != nil {
		return Verdict{}, fmt.Errorf("looking up the pods that show %s: %w", ip, err)
	}
	verdict := r.Ledger.Free(ip)
	var sandboxes v1alpha1.SandboxList
	if err := r.Cache.List(ctx, &sandboxes, client.MatchingFields{IndexAddress: ip}, client.UnsafeDisableDeepCopy); err != nil {
		return Verdict{}, fmt.Errorf("looking up the sandboxes that had %s: %w", ip, err)
	}
	now := clock.PassiveClock(clock.RealClock{})
	if r.Clock != nil {
		now = r.Clock
	}
	return verdict.and(Decide(pod.UID, pods.Items, sandboxes.Items, now.Now(), r.Ledger.cooldown)), nil
}
