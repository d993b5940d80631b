package sandboxenv

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/condition"
)

// Several clusters:
//
// An env names pools by cluster ID. A controller writes the entry of its own ID, in the
// spec and in the status, and leaves the others as they are. Conditions and totals
// follow from the spec and from the entries of the clusters that it names alone, so that two
// controllers that see the same env write the same. Only a controller that the env does not
// name says beside that what it leaves as it is.

// writeStatus patches what has changed, and nothing if nothing has. It tests the
// env's version, since a merge patch replaces the whole list of clusters: of two
// controllers that write their entries at the same time one meets a conflict.
func (r *SandboxEnvReconciler) writeStatus(ctx context.Context, env *v1alpha1.SandboxEnv, template *v1alpha1.SandboxTemplate, seen []memberView) error {
	seenNow := *env // shares all but the status with the cache
	env.Status.DeepCopyInto(&seenNow.Status)
	r.fillStatus(&seenNow, template, seen)
	if equality.Semantic.DeepEqual(env.Status, seenNow.Status) {
		return nil
	}
	next := seenNow.DeepCopy()
	err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(env, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the env's status: %w", err)
	}
	r.Metrics.wrote("status")
	return nil
}

// fillStatus derives the status; the times of conditions apart it is pure.
func (r *SandboxEnvReconciler) fillStatus(env *v1alpha1.SandboxEnv, template *v1alpha1.SandboxTemplate, seen []memberView) {
	s := &env.Status
	s.ObservedGeneration = env.Generation
	s.Clusters = slices.DeleteFunc(slices.Clone(s.Clusters), func(c v1alpha1.EnvClusterStatus) bool { return c.ClusterID == r.LocalClusterID })
	if len(seen) > 0 {
		local := v1alpha1.EnvClusterStatus{ClusterID: r.LocalClusterID}
		for _, one := range seen {
			local.ObservedMembers = append(local.ObservedMembers, observe(one, r.now()))
		}
		slices.SortFunc(local.ObservedMembers, func(a, b v1alpha1.ObservedMember) int { return cmp.Compare(a.Name, b.Name) })
		s.Clusters = append(s.Clusters, local)
		slices.SortFunc(s.Clusters, func(a, b v1alpha1.EnvClusterStatus) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	}
	total(env)
	for _, c := range r.conditions(env, template) {
		c.ObservedGeneration = env.Generation
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

// observe is what people see of a member.
func observe(s memberView, now time.Time) v1alpha1.ObservedMember {
	m := v1alpha1.ObservedMember{Name: s.name, State: s.state, LastAttempt: s.attempt, Message: s.message}
	if s.pool == nil {
		return m
	}
	st := s.pool.Status
	m.Idle, m.Running, m.Pending = max(st.Idle-st.UnavailableIdle, 0), st.Running+st.Starting, st.Warming+st.UnavailableIdle
	m.Waiting, m.Replicas = st.WaitingClaims, s.pool.Spec.Replicas
	if a := st.AutoScaling; a != nil && a.SaturatedUntil != nil && now.Before(a.SaturatedUntil.Time) {
		m.SaturatedUntil = a.SaturatedUntil
		if m.State == v1alpha1.MemberActive {
			m.State, m.Message = v1alpha1.MemberSaturated, a.Message
		}
	}
	return m
}

// lastAttempt is what the status says of the last try to write a member's pool.
func lastAttempt(env *v1alpha1.SandboxEnv, clusterID, member string) string {
	for _, c := range env.Status.Clusters {
		if c.ClusterID != clusterID {
			continue
		}
		for _, m := range c.ObservedMembers {
			if m.Name == member {
				return m.LastAttempt
			}
		}
	}
	return ""
}

// GroupOf is a member's scaling group.
func GroupOf(m v1alpha1.EnvMember) string { return cmp.Or(m.Config.ScalingGroup, "default") }

// current are the entries of the clusters that the env names. That of another may be a
// controller's that is gone, and stays: only that controller writes it.
func current(env *v1alpha1.SandboxEnv) []v1alpha1.EnvClusterStatus {
	return slices.DeleteFunc(slices.Clone(env.Status.Clusters), func(c v1alpha1.EnvClusterStatus) bool { return !env.Spec.HasCluster(c.ClusterID) })
}

// total sums up what the controllers of the env's clusters saw.
func total(env *v1alpha1.SandboxEnv) {
	s := &env.Status
	s.Members, s.Idle, s.Running, s.Waiting = 0, 0, 0, 0
	groups := map[string]v1alpha1.ScalingGroupStatus{}
	for _, c := range current(env) {
		of := map[string]string{}
		for _, m := range MembersOf(env, c.ClusterID) {
			of[m.Name] = GroupOf(m)
		}
		for _, m := range c.ObservedMembers {
			s.Idle, s.Running, s.Waiting = s.Idle+m.Idle, s.Running+m.Running, s.Waiting+m.Waiting
			name, member := of[m.Name]
			if !member {
				continue // it drains
			}
			s.Members++
			g := groups[name]
			g.Name, g.Idle, g.Running, g.Desired, g.Waiting = name, g.Idle+m.Idle, g.Running+m.Running, g.Desired+m.Replicas, g.Waiting+m.Waiting
			groups[name] = g
		}
	}
	s.ScalingGroups = nil
	for _, g := range groups {
		s.ScalingGroups = append(s.ScalingGroups, g)
	}
	slices.SortFunc(s.ScalingGroups, func(a, b v1alpha1.ScalingGroupStatus) int { return cmp.Compare(a.Name, b.Name) })
}

func (r *SandboxEnvReconciler) conditions(env *v1alpha1.SandboxEnv, template *v1alpha1.SandboxTemplate) []metav1.Condition {
	consistent := condition.Of(v1alpha1.EnvConditionTemplateConsistent, true, "AsExpected", "the template is there, and every pool is as the env says")
	if template == nil {
		consistent = condition.Of(v1alpha1.EnvConditionTemplateConsistent, false, "TemplateNotFound", noTemplate(env))
	}
	for _, c := range env.Status.Clusters {
		if !env.Spec.HasCluster(c.ClusterID) && c.ClusterID != r.LocalClusterID {
			continue
		}
		for _, m := range c.ObservedMembers {
			wrong := m.State == v1alpha1.MemberInconsistent || m.State == v1alpha1.MemberMissing
			if wrong && consistent.Status == metav1.ConditionTrue {
				consistent = condition.Of(v1alpha1.EnvConditionTemplateConsistent, false, string(m.State), fmt.Sprintf("member %s: %s", m.Name, cmp.Or(m.LastAttempt, m.Message)))
			}
		}
	}
	scaling := condition.Of(v1alpha1.EnvConditionAutoscalingActive, false, "Disabled", "spec.autoscaling.enabled is not true")
	if a := env.Spec.Autoscaling; a != nil && a.Enabled {
		scaling = condition.Of(v1alpha1.EnvConditionAutoscalingActive, true, "Enabled", "the members' replicas follow demand")
	}
	return []metav1.Condition{r.ready(env), consistent, scaling}
}

// ready: some member can serve a claim.
func (r *SandboxEnvReconciler) ready(env *v1alpha1.SandboxEnv) metav1.Condition {
	is := condition.Of(v1alpha1.EnvConditionReady, false, "NoMembers", "no cluster has a member")
	if !env.Spec.HasCluster(r.LocalClusterID) {
		is.Message = fmt.Sprintf("no cluster has a member, and spec.clusters has no %s, which is the --cluster-id of this controller", r.LocalClusterID)
	}
	for _, c := range current(env) {
		for _, m := range c.ObservedMembers {
			switch m.State {
			case v1alpha1.MemberActive, v1alpha1.MemberSaturated, v1alpha1.MemberInconsistent:
			default:
				if is.Reason == "NoMembers" {
					is.Message = fmt.Sprintf("member %s is %s: %s", m.Name, m.State, cmp.Or(m.LastAttempt, m.Message, "it serves no claim"))
				}
				continue
			}
			if m.Idle > 0 {
				return condition.Of(v1alpha1.EnvConditionReady, true, "MembersAvailable", "a claim is served at once")
			}
			is.Reason, is.Message = "NoIdlePod", "no member has a pod that is idle and Ready"
		}
	}
	return is
}
