// Package poolrender says what the pool of an env's member looks like. It is pure:
// the same env, member and template give the same pool, and nothing that is given is
// changed or shared with the result.
//
// Render makes the whole pool, Stamp brings one that exists in line with it.
package poolrender

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// ErrNoTemplate says that the env's template is not there, so that no pool is made.
var ErrNoTemplate = errors.New("the env's SandboxTemplate is not there")

// Render returns the pool of a member as it is made: with the env as its controller.
// template is the one that the env names; nil is ErrNoTemplate. A pool whose member
// says nothing of replicas begins with one, within the member's bounds.
func Render(env *v1alpha1.SandboxEnv, member v1alpha1.EnvMember, template *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxPool, error) {
	if template == nil {
		return nil, ErrNoTemplate
	}
	if want := env.Spec.TemplateRef.Name; template.Name != want {
		return nil, fmt.Errorf("the template is %q, and the env names %q", template.Name, want)
	}
	pool := &v1alpha1.SandboxPool{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: env.Namespace, Name: member.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(env, v1alpha1.GroupVersion.WithKind("SandboxEnv"))},
		},
		Spec: spec(env, member, initialReplicas(member.Config)),
	}
	setKeys(pool, env, member, template)
	return pool, nil
}

// Stamp returns the pool with everything that env and member say. Labels, annotations,
// owners and finalizers that they do not name stay; so do replicas where the member
// has none, and the pool's template while template is nil: an env that names one
// that is not there must not take the template of a pool that works.
func Stamp(pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv, member v1alpha1.EnvMember, template *v1alpha1.SandboxTemplate) *v1alpha1.SandboxPool {
	next := pool.DeepCopy()
	had := next.Spec
	replicas := had.Replicas
	if _, drained := next.Annotations[v1alpha1.AnnotationDraining]; drained { // which took them away
		replicas = initialReplicas(member.Config)
	}
	next.Spec = spec(env, member, replicas)
	if template == nil {
		next.Spec.TemplateRef, next.Spec.Template = had.TemplateRef, had.Template
	}
	setKeys(next, env, member, template)
	delete(next.Annotations, v1alpha1.AnnotationDraining) // it is a member again
	return next
}

// spec is the whole spec of a member's pool. What the member leaves out has the
// pool's own default, so that nothing of an earlier version of the env stays.
func spec(env *v1alpha1.SandboxEnv, member v1alpha1.EnvMember, replicas int32) v1alpha1.SandboxPoolSpec {
	m := member.Spec.DeepCopy()
	if m.Replicas != nil {
		replicas = *m.Replicas
	}
	return v1alpha1.SandboxPoolSpec{
		Replicas:               replicas,
		MaxPods:                m.MaxPods,
		TemplateRef:            &v1alpha1.TemplateRef{Name: env.Spec.TemplateRef.Name},
		PodCreationImagePolicy: cmp.Or(m.PodCreationImagePolicy, v1alpha1.ImagePolicyPoolDefault),
		RecyclePolicy:          cmp.Or(m.RecyclePolicy, v1alpha1.RecycleReplace),
		StartupTimeout:         m.StartupTimeout,
		IdleTimeout:            m.IdleTimeout,
		ScaleDownProtection:    m.ScaleDownProtection,
		Pause:                  m.Pause,
		Egress:                 m.Egress,
		FirstRequest:           env.Spec.FirstRequest.DeepCopy(),
	}
}

// initialReplicas is 1, as that of pools, within the member's bounds.
func initialReplicas(c v1alpha1.EnvMemberConfig) int32 {
	n := int32(1)
	if c.MinReplicas != nil {
		n = max(n, *c.MinReplicas)
	}
	if c.MaxReplicas != nil {
		n = min(n, *c.MaxReplicas)
	}
	return n
}

// setKeys sets the labels and annotations of env, member and template on the pool. The
// template's win, as on a pool without an env.
func setKeys(pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv, member v1alpha1.EnvMember, template *v1alpha1.SandboxTemplate) {
	if pool.Labels == nil {
		pool.Labels = map[string]string{}
	}
	maps.Copy(pool.Labels, member.Labels)
	pool.Labels[v1alpha1.LabelEnv] = env.Name
	if len(member.Annotations) > 0 && pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	maps.Copy(pool.Annotations, member.Annotations)
	if template != nil {
		sandboxpool.SyncLabelsFromTemplate(pool, template)
		sandboxpool.SyncAnnotationsFromTemplate(pool, template)
	}
}
