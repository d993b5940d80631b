package sandboxpool

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/condition"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// writeStatus patches what has changed, and nothing if nothing has.
func (r *SandboxPoolReconciler) writeStatus(ctx context.Context, pool *v1alpha1.SandboxPool, out outcome) error {
	filled := *pool // shares all but the status with pool
	pool.Status.DeepCopyInto(&filled.Status)
	fillStatus(&filled, out.counts, out)
	if equality.Semantic.DeepEqual(pool.Status, filled.Status) {
		return nil
	}
	next := filled.DeepCopy()
	err := r.Client.Status().Patch(ctx, next, client.MergeFrom(pool))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the pool's status: %w", err)
	}
	return nil
}

// fillStatus derives the status; times apart it is pure.
func fillStatus(pool *v1alpha1.SandboxPool, c counts, out outcome) {
	s := &pool.Status
	s.ObservedGeneration = pool.Generation
	s.Warming, s.Idle, s.UnavailableIdle = int32(c.warming+len(c.waiting)), int32(c.idle), int32(c.unavailableIdle) //nolint:gosec // counts of pods
	s.Starting, s.Running = int32(c.starting), int32(c.running)                                                     //nolint:gosec // counts of pods
	s.Stopping, s.Failed = int32(c.stopping), int32(c.failed)                                                       //nolint:gosec // counts of pods
	s.Paused = int32(out.paused)                                                                                    //nolint:gosec // a count of sandboxes
	if out.known || out.waiting > int(s.WaitingClaims) {
		s.WaitingClaims = int32(out.waiting) //nolint:gosec // a count of sandboxes
	}
	s.Selector = labels.Set{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelPhase: string(v1alpha1.PodIdle)}.String()
	s.Phase = phase(pool, c, out)
	s.Drained = drained(pool, c, out)
	if s.IDPrefix = ""; out.reservation == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.PoolConditionIDPrefix)
	} else if out.reservation.Status == metav1.ConditionTrue {
		s.IDPrefix = prefixOf(pool)
	}
	for _, condition := range conditions(pool, c, out) {
		condition.ObservedGeneration = pool.Generation
		meta.SetStatusCondition(&s.Conditions, condition)
	}
}

// drained returns the mark for which the pool has no pods and makes none; empty if it may have
// some, or has no mark.
func drained(pool *v1alpha1.SandboxPool, c counts, out outcome) string {
	if !out.shown || c.total != 0 || pool.Spec.Replicas != 0 {
		return ""
	}
	return pool.Annotations[v1alpha1.AnnotationDraining]
}

// phase picks the first that applies, in the order of the constants.
func phase(pool *v1alpha1.SandboxPool, c counts, out outcome) v1alpha1.PoolPhase {
	replicas := int(pool.Spec.Replicas) + out.waiting
	switch {
	case pool.DeletionTimestamp != nil:
		return v1alpha1.PoolTerminating
	case replicas > 0 && c.idle+c.starting+c.running == 0:
		return v1alpha1.PoolPending
	case c.idle < replicas && !out.scaling.full:
		return v1alpha1.PoolScalingUp
	case out.scaling.remove > 0:
		return v1alpha1.PoolScalingDown
	case out.trouble != nil || c.stuck != nil || c.unavailableIdle > 0:
		return v1alpha1.PoolDegraded
	default:
		return v1alpha1.PoolReady
	}
}

func conditions(pool *v1alpha1.SandboxPool, c counts, out outcome) []metav1.Condition {
	available := condition.Of(v1alpha1.PoolConditionAvailable, c.idle > c.unavailableIdle, "PodsIdle", "a claim is served at once")
	switch {
	case drained(pool, c, out) != "":
		available = condition.Of(v1alpha1.PoolConditionAvailable, false, v1alpha1.PoolReasonDrained, "the pool's env has it no more, and it has no pods")
	case draining(pool):
		available = condition.Of(v1alpha1.PoolConditionAvailable, false, v1alpha1.PoolReasonDraining, "the pool's env has it no more: it takes no claims")
	case available.Status == metav1.ConditionTrue:
	case pool.Spec.Replicas == 0 && out.waiting == 0:
		available.Reason, available.Message = "NoReplicas", "the pool is asked for no idle pods"
	case noStart(c, out) != nil:
		d := noStart(c, out)
		available.Reason, available.Message = d.Reason, "no pod can start: "+d.Message
		if was := meta.FindStatusCondition(pool.Status.Conditions, available.Type); was != nil && was.Reason == available.Reason {
			available.Message = was.Message // a kubelet words each try anew
		}
	case out.quotaBinds():
		available.Reason, available.Message = v1alpha1.PoolReasonQuota, out.trouble.message
	case out.scaling.full:
		available.Reason, available.Message = v1alpha1.PoolReasonMaxPods, fmt.Sprintf("all %d pods that maxPods allows are in use", pool.Spec.MaxPods)
	default:
		available.Reason, available.Message = "NoIdlePod", "no pod is idle and Ready"
		if c.progress != "" {
			available.Message += ": " + c.progress
		}
	}
	scaling := condition.Of(v1alpha1.PoolConditionScaling, false, "Settled", "the stock is as asked for")
	switch {
	case out.scaling.remove > 0:
		scaling = condition.Of(v1alpha1.PoolConditionScaling, true, "ScalingDown", "deleting unclaimed pods")
	case c.outdated > 0:
		scaling = condition.Of(v1alpha1.PoolConditionScaling, true, "RollingOut", "idle pods of an old template are being replaced")
	case len(c.waiting) > 0:
		made := out.scaling.create > 0 || c.warming > 0
		scaling = condition.Of(v1alpha1.PoolConditionScaling, made, "AddressBusy",
			fmt.Sprintf("%d pods wait for addresses that gateways may still route to", len(c.waiting)))
	case out.quotaBinds() && c.warming == 0:
		scaling.Reason, scaling.Message = v1alpha1.PoolReasonQuota, "a ResourceQuota of the namespace leaves no room for more pods"
	case out.scaling.create > 0 || c.warming > 0:
		scaling = condition.Of(v1alpha1.PoolConditionScaling, true, "ScalingUp", "pods are being made or are warming")
	case out.scaling.full:
		scaling.Reason, scaling.Message = v1alpha1.PoolReasonMaxPods, "maxPods leaves no room for more pods"
	}
	degraded := condition.Of(v1alpha1.PoolConditionDegraded, false, "AsExpected", "nothing is wrong")
	switch {
	case out.trouble != nil:
		degraded = condition.Of(v1alpha1.PoolConditionDegraded, true, out.trouble.reason, out.trouble.message)
	case c.stuck != nil:
		degraded = condition.Of(v1alpha1.PoolConditionDegraded, true, steady(c.stuck.Reason), c.stuck.Message)
		if was := meta.FindStatusCondition(pool.Status.Conditions, degraded.Type); was != nil && was.Reason == degraded.Reason {
			degraded.Message = was.Message // a kubelet words each try anew
		}
	case c.unavailableIdle > 0:
		degraded = condition.Of(v1alpha1.PoolConditionDegraded, true, "UnavailableIdle", fmt.Sprintf("%d idle pods are not Ready", c.unavailableIdle))
	}
	all := []metav1.Condition{available, scaling, degraded}
	if out.reservation != nil {
		all = append(all, *out.reservation)
	}
	return all
}

// noStart says why none of the pool's pods can start: each that warms waits for what no try can
// mend, or the last one did and there is none now; and no pod of the template was ever Ready, or
// may be recycled. nil if one may start.
func noStart(c counts, out outcome) *podstate.PodStatusDetail {
	switch {
	case c.proven > 0 || c.recycling > 0 || c.cannotStart < c.warming:
		return nil
	case c.warming > 0:
		return &podstate.PodStatusDetail{Reason: steady(c.stuck.Reason), Message: c.stuck.Message}
	case out.trouble != nil && v1alpha1.KeepsFromStarting(out.trouble.reason):
		return &podstate.PodStatusDetail{Reason: out.trouble.reason, Message: out.trouble.message}
	}
	return nil
}

// steady gives states between which a kubelet alternates one name.
func steady(reason string) string {
	if reason == "ImagePullBackOff" {
		return "ErrImagePull"
	}
	return reason
}
