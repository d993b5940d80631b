package autoscaler

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// sized is a member whose pool the env made.
type sized struct {
	Member
	group string
	// cluster and index are its place in the env's spec; asks is what stands there.
	cluster, index int
	asks           *int32
	// pool is the cache's: it must not be changed.
	pool  *v1alpha1.SandboxPool
	known bool
}

// read takes the local members' state from the caches and the demand. A member whose pool is
// missing, going, or not made by the env for this cluster is left out: its replicas reach no
// pool.
func (r *Reconciler) read(ctx context.Context, env *v1alpha1.SandboxEnv, now time.Time) ([]sized, error) {
	var all []sized
	for c := range env.Spec.Clusters {
		if env.Spec.Clusters[c].ClusterID != r.LocalClusterID {
			continue
		}
		for i := range env.Spec.Clusters[c].Members {
			m := &env.Spec.Clusters[c].Members[i]
			pool := &v1alpha1.SandboxPool{}
			err := r.Client.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: m.Name}, pool, client.UnsafeDisableDeepCopy)
			if apierrors.IsNotFound(err) || err == nil && (pool.DeletionTimestamp != nil || !r.isOurs(pool, env)) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading pool %s: %w", m.Name, err)
			}
			s := r.sized(m, pool)
			s.cluster, s.index = c, i
			if enabled(env) && s.known && s.Waiting == 0 && s.Idle > 0 && s.Replicas > 0 {
				if s.LongIdle, err = r.longIdle(ctx, pool, now.Add(-policyOf(env).IdleTimeout)); err != nil {
					return nil, err
				}
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// isOurs reports whether the env made the pool for this cluster; it may not say for which.
func (r *Reconciler) isOurs(pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv) bool {
	cluster := pool.Annotations[v1alpha1.AnnotationCluster]
	return metav1.IsControlledBy(pool, env) && (cluster == "" || cluster == r.LocalClusterID)
}

// sized is what is known of a member without its pods.
func (r *Reconciler) sized(m *v1alpha1.EnvMember, pool *v1alpha1.SandboxPool) sized {
	st := pool.Status
	s := sized{group: cmp.Or(m.Config.ScalingGroup, "default"), pool: pool, asks: m.Spec.Replicas, Member: Member{
		Name: m.Name, Replicas: int(pool.Spec.Replicas), Max: -1,
		UpPriority: int(m.Config.ScaleUpPriority), DownPriority: int(m.Config.ScaleDownPriority),
		Claimed: int(st.Starting + st.Running), Idle: int(max(st.Idle-st.UnavailableIdle, 0)),
		Waiting: int(st.WaitingClaims), Short: shortage(pool), State: r.memory.latest(pool.UID, stateOf(st.AutoScaling)),
	}}
	if m.Spec.Replicas != nil {
		s.Replicas = int(*m.Spec.Replicas)
	}
	if c := m.Config; c.MinReplicas != nil {
		s.Min = int(*c.MinReplicas)
	}
	if c := m.Config; c.MaxReplicas != nil {
		s.Max = int(*c.MaxReplicas)
	}
	if r.Demand != nil {
		// Polls know which sandboxes wait, and are a second old; the pool leaves out those
		// whose claims it has seen, and may not know of the newest. A sandbox that only one
		// of the two counts is either served already, so that it counts as claimed, or is
		// counted by both next time. Nothing shrinks meanwhile.
		d := r.Demand.Of(client.ObjectKeyFromObject(pool))
		s.Waiting, s.LastCreate = min(len(d.Waiting), int(st.WaitingClaims)), d.Created
		s.known = d.Known && (len(d.Waiting) == 0) == (st.WaitingClaims == 0)
	}
	if noted, err := time.Parse(time.RFC3339Nano, pool.Annotations[v1alpha1.AnnotationLastCreate]); err == nil && noted.After(s.LastCreate) {
		s.LastCreate = noted
	}
	return s
}

// shortage says why a pool cannot have the pods that it is asked for; empty if it can,
// as far as is known.
func shortage(pool *v1alpha1.SandboxPool) string {
	if no := v1alpha1.RefusalOf(pool); no != "" {
		return no
	}
	if c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionScaling); c != nil && c.Reason == "MaxPods" {
		return c.Message
	}
	return ""
}

// longIdle counts the pool's pods that have been idle since before a time.
func (r *Reconciler) longIdle(ctx context.Context, pool *v1alpha1.SandboxPool, before time.Time) (n int, err error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(pool.Namespace), client.MatchingFields{indexIdle: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the idle pods of pool %s: %w", pool.Name, err)
	}
	for i := range pods.Items {
		since, err := time.Parse(time.RFC3339Nano, pods.Items[i].Annotations[v1alpha1.AnnotationIdleSince])
		if err == nil && since.Before(before) && pods.Items[i].DeletionTimestamp == nil {
			n++
		}
	}
	return n, nil
}

// decide decides for each group, and returns the members with what is to become of them.
func decide(env *v1alpha1.SandboxEnv, members []sized, now time.Time) []change {
	groups := map[string][]int{}
	for i, m := range members {
		groups[m.group] = append(groups[m.group], i)
	}
	changes := make([]change, len(members))
	for name, of := range groups {
		s := Snapshot{Now: now, Enabled: enabled(env), Known: true, Policy: policyOf(env), Max: -1}
		if env.Spec.Autoscaling != nil {
			for _, g := range env.Spec.Autoscaling.Groups {
				if g.Name == name && g.MinReplicas != nil {
					s.Min = int(*g.MinReplicas)
				}
				if g.Name == name && g.MaxReplicas != nil {
					s.Max = int(*g.MaxReplicas)
				}
			}
		}
		for _, i := range of {
			s.Members = append(s.Members, members[i].Member)
			s.Known = s.Known && members[i].known
		}
		for k, d := range Decide(s).Members {
			changes[of[k]] = change{from: members[of[k]], to: d}
		}
	}
	return changes
}

// policyOf is spec.autoscaling with its defaults: an env that was read from the API
// has them filled in where their parents are set.
func policyOf(env *v1alpha1.SandboxEnv) Policy {
	var a v1alpha1.EnvAutoscaling
	if env.Spec.Autoscaling != nil {
		a = *env.Spec.Autoscaling
	}
	or := func(d *metav1.Duration, unset time.Duration) time.Duration {
		if d == nil {
			return unset
		}
		return d.Duration
	}
	return Policy{
		Mode: cmp.Or(a.ScaleUp.Mode, v1alpha1.ScaleUpDefault), Cooldown: or(a.ScaleUp.Cooldown, 30*time.Second),
		IdleThreshold: or(a.ScaleUp.IdleThreshold, 30*time.Second), QuietWindow: or(a.ScaleUp.QuietWindow, 5*time.Minute),
		SaturationCooldown: or(a.ScaleUp.SaturationCooldown, time.Minute),
		IdleTimeout:        or(a.ScaleDown.IdleTimeout, 5*time.Minute), Stabilization: or(a.ScaleDown.Stabilization, time.Minute),
	}
}
