package sandboxpool

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// outcome is what scaling found and did, for the status.
type outcome struct {
	counts  counts
	scaling scaling
	trouble *trouble
	recheck time.Duration
	// shown: the pods that were counted show all that this process wrote.
	shown bool
	// paused is how many of the pool's sandboxes are paused and keep their pods.
	paused int
	// reservation is what reservation returns.
	reservation *metav1.Condition
	asked
}

// quotaBinds reports whether a ResourceQuota refused the last pod that was wanted, in
// which case maxPods, which may be short of what is wanted too, is not what keeps it away.
func (o outcome) quotaBinds() bool {
	return o.trouble != nil && o.trouble.reason == v1alpha1.PoolReasonQuota
}

// atBound reports whether a pool that wants more pods has all that its tenant's bounds
// allow. One that has unclaimed pods is not at its bound: that they do not serve the claims
// is not the tenant's doing. Neither is one whose maxPods only pods that go away fill.
func (o outcome) atBound() bool {
	c := o.counts
	if c.idle+c.warming+len(c.waiting) > 0 {
		return false
	}
	return o.quotaBinds() || o.scaling.full && c.starting+c.running > 0
}

// asked is what is asked of a pool beyond its replicas: waiting sandboxes have no pod,
// or known is false and more may wait.
type asked struct {
	waiting int
	known   bool
}

// scale creates or deletes unclaimed pods; shown: the pods that were counted
// show all that this process wrote. Errors of the API server become
// trouble, shown in the status and waited out.
func (r *SandboxPoolReconciler) scale(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, templateErr *podtemplate.Error, c counts, a asked, shown bool) outcome {
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	out := outcome{counts: c, asked: a, shown: shown}
	r.backoff.noteReady(key, tpl.HashOrEmpty(), c.proven)
	troubles := r.backoff.state(key, tpl.HashOrEmpty())
	limits := limitsOf(pool, troubles, a)
	r.Metrics.demanded(key, limits.wanted(), a.waiting)
	out.scaling = decideScale(c, limits)
	if out.scaling.held {
		out.recheck = unknownRecheck
	}
	if out.trouble = troubles.worst(); templateErr != nil {
		out.trouble = &trouble{reason: templateErr.Reason, message: templateErr.Message}
	}
	if !shown {
		// What was looked at lagged behind this process's own writes. Their events ask again;
		// if none comes, the expectations run out.
		return out
	}
	r.deleteWaiting(ctx, &out)
	r.shrink(ctx, protectionOf(pool), &out)
	if tpl == nil {
		return out
	}
	r.grow(ctx, pool, tpl, &out, troubles.wait)
	return out
}

// deleteWaiting deletes pods that wait for their address where they are in the way.
func (r *SandboxPoolReconciler) deleteWaiting(ctx context.Context, out *outcome) {
	for _, pod := range out.counts.waiting[:out.scaling.deleteWaiting] {
		if err := r.delete(ctx, pod, "AddressBusy"); err != nil {
			log.FromContext(ctx).Error(err, "replacing a pod whose address is not free")
			out.recheck = backoffFirst
		}
	}
}

// shrink takes the pods that are too many, or of an old template, one step
// further.
func (r *SandboxPoolReconciler) shrink(ctx context.Context, protection time.Duration, out *outcome) {
	c, reason := out.counts, "ScaleDown"
	victims := c.victims(out.scaling.remove)
	if n := out.scaling.replace; n > 0 {
		reason, victims = "Outdated", firstOutdated(c, n)
	}
	wait, err := r.retire(ctx, protection, c.spare, victims, reason)
	if err != nil {
		log.FromContext(ctx).Error(err, "deleting unclaimed pods", "reason", reason)
		wait = backoffFirst
	}
	out.recheck = resync.Sooner(out.recheck, wait)
}

// firstOutdated picks idle pods of an old template: spare has them after the
// warming ones, which are of the new one.
func firstOutdated(c counts, n int) []*corev1.Pod {
	return c.spare[c.warming:min(c.warming+n, len(c.spare))]
}

// grow creates pods, unless a wait runs.
func (r *SandboxPoolReconciler) grow(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, out *outcome, wait time.Duration) {
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	switch s := out.scaling; {
	case s.create == 0 && !s.short:
		r.backoff.accepted(key, tpl.Hash, true)
		return
	case s.create == 0:
		return // a pod that turns idle or fails asks again
	case wait > 0:
		out.recheck = resync.Sooner(out.recheck, wait)
		return
	}
	created, err := r.create(ctx, pool, tpl, out.scaling.create, out.scaling.ordered)
	if err == nil {
		r.backoff.accepted(key, tpl.Hash, !out.scaling.short)
		return
	}
	reason, message := explain(err)
	r.backoff.refused(key, tpl.Hash, reason, message)
	r.event(pool, corev1.EventTypeWarning, "CreateFailed", "Create", "creating a pod failed: %s", message)
	log.FromContext(ctx).Info("creating pods failed", "created", created, "wanted", out.scaling.create, "reason", reason)
	known := r.backoff.state(key, tpl.Hash)
	out.trouble, out.recheck = known.worst(), resync.Sooner(out.recheck, known.wait)
}
