package index

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// PoolInfo is what is known of a SandboxPool.
type PoolInfo struct {
	Namespace, Name string
	UID             types.UID
	CreatedAt       time.Time
	// Aliases are further names for it, from its annotation.
	Aliases []string
	// Build is the TemplateBuild whose pool it is, and Template the ID of the template; Template
	// is empty for a builder's pool. Both are empty for other pools.
	Build, Template string
	// Deleting: the pool is on its way out, or its env has it no more; nothing should be
	// claimed from it.
	Deleting bool
	// LastCreate is the pool's annotation of that name.
	LastCreate string
	// Owner is the UID of the env that owns the pool; empty if none does.
	Owner types.UID
	// Cluster is the cluster ID whose entry in the env the pool is of; empty if it does
	// not say.
	Cluster string
	// SaturatedUntil is until when the pool is asked last, by its controller's clock;
	// zero if it is not.
	SaturatedUntil time.Time
	// Full: it has all pods that maxPods allows, and none is idle or will be soon; or it
	// has no idle pod, and more are refused.
	Full bool
	// NoStart is the reason for which none of its pods can start; empty if one may.
	NoStart string
	// BindingPrefix is the idPrefix that binds other namespaces, by the pool's status.
	BindingPrefix string
	// Spec is shared: do not change it.
	Spec *v1alpha1.SandboxPoolSpec
}

// Access says what a first request must show; empty means that no request may claim
// by itself, as from a pool that is being deleted.
func (p PoolInfo) Access() v1alpha1.FirstRequestAccess {
	if p.Spec == nil || p.Spec.FirstRequest == nil || p.Deleting {
		return ""
	}
	return p.Spec.FirstRequest.Access
}

// PoolAccess says what a first request must show to claim a pod of the pool; with an empty access
// none may. ok is false if the watch knows of no such pool.
func (x *Index) PoolAccess(namespace, name string) (access v1alpha1.FirstRequestAccess, ok bool) {
	p, ok := x.Pool(namespace, name)
	return p.Access(), ok
}

// LastCreate returns the pool's annotation of that name.
func (x *Index) LastCreate(pool types.NamespacedName) (annotation string, exists bool) {
	p, ok := x.Pool(pool.Namespace, pool.Name)
	return p.LastCreate, ok
}

// NoStart is the reason for which none of the pool's pods can start; empty if one may.
func (x *Index) NoStart(namespace, pool string) string {
	p, _ := x.Pool(namespace, pool)
	return p.NoStart
}

// FirstRequestTimeouts returns the timeouts of a sandbox that a first request makes from the pool.
func (x *Index) FirstRequestTimeouts(namespace, pool string) (t v1alpha1.SandboxTimeouts) {
	p, _ := x.Pool(namespace, pool)
	v1alpha1.PauseDefaults(&t, p.Spec)
	return t
}

// FirstRequestEgress returns which hosts such a sandbox may connect to; nil leaves that to the
// cluster.
func (x *Index) FirstRequestEgress(namespace, pool string) *v1alpha1.SandboxEgress {
	p, _ := x.Pool(namespace, pool)
	if p.Spec == nil || p.Spec.FirstRequest == nil {
		return nil
	}
	return p.Spec.FirstRequest.Egress.Sandbox()
}

// Template returns what the pool's pods are made from: its own template, or the
// one that it refers to. Nil if that does not exist. It is shared: do not change it.
func (x *Index) Template(p PoolInfo) *v1alpha1.SandboxTemplateSpec {
	switch {
	case p.Spec == nil:
		return nil
	case p.Spec.Template != nil:
		return p.Spec.Template
	case p.Spec.TemplateRef == nil:
		return nil
	}
	return x.TemplateNamed(p.Spec.TemplateRef.Name)
}

// TemplateNamed returns a SandboxTemplate; nil if there is none. It is shared: do not
// change it.
func (x *Index) TemplateNamed(name string) *v1alpha1.SandboxTemplateSpec {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.templates[name]
}

// ofCluster reports whether the pool belongs to the env's entry with that cluster ID. A
// pool whose cluster has no entry in the env belongs to all entries: the cluster's ID was
// changed, and the controller has not written the new one to the pool yet.
func (p PoolInfo) ofCluster(id string, env *v1alpha1.SandboxEnvSpec) bool {
	return p.Cluster == id || !env.HasCluster(p.Cluster)
}

type poolKey struct{ namespace, name string }

// Pool returns a pool by name; false if the watch knows of none.
func (x *Index) Pool(namespace, name string) (PoolInfo, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p, ok := x.pools[poolKey{namespace, name}]
	return p, ok
}

// Pools returns all pools, in no order.
func (x *Index) Pools() []PoolInfo {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]PoolInfo, 0, len(x.pools))
	for _, p := range x.pools {
		all = append(all, p)
	}
	return all
}

func (x *Index) setPool(o *v1alpha1.SandboxPool) {
	key := poolKey{o.Namespace, o.Name}
	info := PoolInfo{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, CreatedAt: o.CreationTimestamp.Time,
		Aliases: aliases(o.Annotations[v1alpha1.AnnotationAliases]), Spec: &o.Spec,
		Deleting:   o.DeletionTimestamp != nil || o.Annotations[v1alpha1.AnnotationDraining] != "",
		LastCreate: o.Annotations[v1alpha1.AnnotationLastCreate], BindingPrefix: o.Status.IDPrefix,
	}
	info.Build, info.Template = o.Labels[v1alpha1.LabelBuild], o.Labels[v1alpha1.LabelTemplate]
	info.Owner, info.Cluster = ownerOf(o), o.Annotations[v1alpha1.AnnotationCluster]
	if a := o.Status.AutoScaling; a != nil && a.SaturatedUntil != nil {
		info.SaturatedUntil = a.SaturatedUntil.Time
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolConditionAvailable); c != nil {
		info.Full = c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.PoolReasonMaxPods && o.Status.Idle+o.Status.Warming == 0
	}
	info.NoStart = v1alpha1.NoStartOf(o)
	info.Full = info.Full || o.Status.Idle == 0 && v1alpha1.RefusalOf(o) != ""
	x.mu.Lock()
	was, known := x.pools[key]
	x.pools[key] = info
	if !known || namesOf(was) != namesOf(info) {
		x.names.Store(newPoolNames(x.pools))
	}
	x.mu.Unlock()
	x.hooks.PoolChanged(o.Namespace, o.Name, true)
}

// aliases parses a list separated by commas.
func aliases(list string) []string {
	var all []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// removePool removes the pool of the store's key, namespace/name.
func (x *Index) removePool(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	x.mu.Lock()
	delete(x.pools, poolKey{namespace, name})
	x.names.Store(newPoolNames(x.pools))
	x.mu.Unlock()
	x.hooks.PoolChanged(namespace, name, false)
}

func (x *Index) poolKeys() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	keys := make([]string, 0, len(x.pools))
	for k := range x.pools {
		keys = append(keys, k.namespace+"/"+k.name)
	}
	return keys
}
