package sandbox

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/steadyclock"
)

// followTimeOfDay begins to follow steps of the machine's time of day, until ctx ends. After
// a step it queues every sandbox that has an end time: an end that was an hour away may be
// due.
func (r *Reconciler) followTimeOfDay(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c, ok := r.Clock.(*steadyclock.Clock)
	if !ok {
		return nil
	}
	go c.Keep(ctx, func() {
		var all v1alpha1.SandboxList
		if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "the time of day has changed, and the sandboxes could not be listed: ends may come late")
			return
		}
		for i := range all.Items {
			if s := &all.Items[i]; s.Spec.End == nil && s.Spec.Timeouts.EndAt != nil {
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: s.Name}})
			}
		}
	})
	return nil
}
