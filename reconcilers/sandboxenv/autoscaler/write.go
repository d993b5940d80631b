package autoscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// What may write what:
//
//	env, members[].spec.replicas    this package, testing the value that it read; people, where autoscaling is off
//	pool, status.autoScaling        this package; times of the leading controller
//
// The bookkeeping is written first, so a controller that dies between the two waits a
// cooldown too many and never orders twice. If the env cannot be written, the bookkeeping
// says so: the attempt Failed, and the times of steps are what they were. If the env has moved
// on, or the cache was behind, there was no attempt: the bookkeeping is what it was.
//
// The caches may be behind what was written. The value that a write replaces is tested,
// so a step is made once; and of each time the later counts, of what is read and of
// what this process wrote.
//
// A pool that the env did not make is left alone, also one that was there before and has
// been adopted: the env's replicas do not reach it.

// change is a member as it was read, and what was decided for it.
type change struct {
	from sized
	to   MemberDecision
}

// resized: its replicas are to be written.
func (c *change) resized() bool { return c.to.Replicas != c.from.Replicas }

// write notes the bookkeeping of all members, then writes all replicas in one patch of the
// env. written is false if the env has moved on meanwhile: the steps have not been made,
// and what was noted says so.
func (r *Reconciler) write(ctx context.Context, env *v1alpha1.SandboxEnv, changes []change, now time.Time) (written bool, err error) {
	steps := 0
	for i := range changes {
		if err := r.note(ctx, &changes[i], changes[i].to.State); err != nil {
			return false, err
		}
		if changes[i].resized() {
			steps++
		}
	}
	r.tellSaturated(env, changes, now)
	if steps == 0 {
		r.drains(env, changes, now)
		return true, nil
	}
	err = r.Client.Patch(ctx, &v1alpha1.SandboxEnv{ObjectMeta: *env.ObjectMeta.DeepCopy()}, patchOf(env, changes).Build())
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		r.Metrics.envWrite("failed")
		return false, r.failed(ctx, changes, now, err)
	}
	r.Metrics.envWrite("written")
	r.tell(env, changes, now)
	return true, nil
}

// patchOf writes the replicas, if they still are what was decided on and autoscaling
// is still enabled.
func patchOf(env *v1alpha1.SandboxEnv, changes []change) writes.Patch {
	p := writes.For(env.UID).Test("/spec/autoscaling/enabled", true)
	for i := range changes {
		c := &changes[i]
		if !c.resized() {
			continue
		}
		cluster := fmt.Sprintf("/spec/clusters/%d", c.from.cluster)
		member := fmt.Sprintf("%s/members/%d", cluster, c.from.index)
		var old any
		if c.from.asks != nil {
			old = *c.from.asks
		}
		p = p.Test(cluster+"/clusterID", env.Spec.Clusters[c.from.cluster].ClusterID).
			Test(member+"/name", c.to.Name).
			Test(member+"/spec/replicas", old).
			Set(member+"/spec/replicas", c.to.Replicas)
	}
	return p
}

// failed notes on the pools that their steps have not been made. It returns an error
// but for a test that failed: then the env is looked at anew, as it is now.
func (r *Reconciler) failed(ctx context.Context, changes []change, now time.Time, err error) error {
	moved := writes.Moved(err) || writes.Judge(err) == writes.Conflict
	for i := range changes {
		c := &changes[i]
		if !c.resized() {
			continue
		}
		st := c.to.State
		was := c.from.State
		st.LastUp, st.LastDown = was.LastUp, was.LastDown
		switch {
		case moved:
			st.LastAttempt, st.Result, st.Message, st.SaturatedUntil = was.LastAttempt, was.Result, was.Message, was.SaturatedUntil
		case c.to.Replicas > c.from.Replicas:
			st.LastAttempt, st.Result, st.Message = now, v1alpha1.ScaleUpFailed, "the env's replicas could not be written: "+err.Error()
			r.Metrics.attempt(st.Result)
		}
		if noted := r.note(ctx, c, st); noted != nil {
			log.FromContext(ctx).Error(noted, "noting that a step was not made", "pool", c.to.Name)
		}
	}
	if moved {
		return nil
	}
	return fmt.Errorf("writing the env's replicas: %w", err)
}

// note writes a pool's bookkeeping, if it differs from what is noted.
func (r *Reconciler) note(ctx context.Context, c *change, st State) error {
	noted := autoScalingOf(st)
	if equality.Semantic.DeepEqual(c.from.pool.Status.AutoScaling, noted) {
		return nil
	}
	next := c.from.pool.DeepCopy()
	next.Status.AutoScaling = noted
	err := r.Client.Status().Patch(ctx, next, client.MergeFrom(c.from.pool))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("noting the bookkeeping of pool %s: %w", c.to.Name, err)
	}
	r.memory.keep(c.from.pool.UID, st)
	c.from.pool = next
	return nil
}

// tell records the steps that were made.
func (r *Reconciler) tell(env *v1alpha1.SandboxEnv, changes []change, now time.Time) {
	for i := range changes {
		c := &changes[i]
		if !c.resized() {
			continue
		}
		r.Metrics.decided(c.to.Reason)
		if st := c.to.State; st.LastAttempt.Equal(now) && st.Result != "" {
			r.Metrics.attempt(st.Result)
		}
		if c.to.Replicas > c.from.Replicas {
			r.event(env, c, corev1.EventTypeNormal, "ScaledUp", "member %s: %d replicas, were %d (%s)", c.to.Name, c.to.Replicas, c.from.Replicas, c.to.Reason)
		}
	}
	r.drains(env, changes, now)
}

// tellSaturated records that members have become unable to grow.
func (r *Reconciler) tellSaturated(env *v1alpha1.SandboxEnv, changes []change, now time.Time) {
	for i := range changes {
		c := &changes[i]
		st := c.to.State
		if !st.SaturatedUntil.After(now) || !st.SaturatedUntil.After(c.from.State.SaturatedUntil) {
			continue
		}
		if !c.resized() {
			r.Metrics.attempt(st.Result)
		}
		if !c.from.State.SaturatedUntil.After(now.Add(-2 * longest)) {
			r.event(env, c, corev1.EventTypeWarning, "Saturated", "member %s cannot grow: %s", c.to.Name, st.Message)
		}
	}
}

// event records what a person would want to know of a member. Its pool is named as
// related: Events of one reason that are about different members are not one.
func (r *Reconciler) event(env *v1alpha1.SandboxEnv, c *change, kind, reason, note string, args ...any) {
	if r.Recorder != nil {
		r.Recorder.Eventf(env.DeepCopy(), c.from.pool.DeepCopy(), kind, reason, "Scale", note, args...)
	}
}
