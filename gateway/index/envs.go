package index

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// EnvInfo is what is known of a SandboxEnv.
type EnvInfo struct {
	Namespace, Name string
	UID             types.UID
	CreatedAt       time.Time
	// Deleting: the env is on its way out; nothing should be claimed from it.
	Deleting bool
	// Owner is the UID of the pool that owns the env; empty if none does.
	Owner types.UID
	// Spec is shared: do not change it.
	Spec *v1alpha1.SandboxEnvSpec
}

// Member is a pool of an env, with the env's entry for it.
type Member struct {
	PoolInfo
	Config v1alpha1.EnvMemberConfig
}

// Env returns an env by name; false if the watch knows of none.
func (x *Index) Env(namespace, name string) (EnvInfo, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.envs[poolKey{namespace, name}]
	return e, ok
}

// EnvAccess says what a first request for a new sandbox of an env must show; empty means
// that no request makes one. The env of an adopted pool has a copy of the pool's access,
// which may be behind: so the pool's own counts, and none if the pool is not there.
func (x *Index) EnvAccess(namespace, name string) (access v1alpha1.FirstRequestAccess, ok bool) {
	e, ok := x.Env(namespace, name)
	if !ok || e.Deleting {
		return "", ok
	}
	if e.Owner != "" { // the env has the pool's name
		if p, _ := x.Pool(namespace, name); p.UID == e.Owner {
			return p.Access(), true
		}
		return "", true
	}
	if e.Spec.FirstRequest == nil {
		return "", true
	}
	return e.Spec.FirstRequest.Access, true
}

// ReachOfEnv is Reach for a sandbox of an env: where its pool is gone, what the env says.
func (x *Index) ReachOfEnv(namespace, env, pool string) v1alpha1.FirstRequestReach {
	if r, ok := x.names.Load().reach[poolKey{namespace, pool}]; ok {
		return r
	}
	// An env that was made for a pool says nothing of its own, and its pool is gone.
	if e, ok := x.Env(namespace, env); ok && !e.Deleting && e.Owner == "" {
		return v1alpha1.ReachOf(&v1alpha1.SandboxPoolSpec{FirstRequest: e.Spec.FirstRequest})
	}
	return v1alpha1.ReachKey
}

// Envs returns all envs, in no order.
func (x *Index) Envs() []EnvInfo {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]EnvInfo, 0, len(x.envs))
	for _, e := range x.envs {
		all = append(all, e)
	}
	return all
}

// Members returns the pools that claims of the env may go to, in the env's order: each
// member that exists in this cluster, is owned by the env or owns it, and is not being
// deleted or drained. An env that is unknown or being deleted has none.
func (x *Index) Members(namespace, env string) []Member {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.envs[poolKey{namespace, env}]
	if !ok || e.Deleting {
		return nil
	}
	var all []Member
	for _, c := range e.Spec.Clusters {
		for _, m := range c.Members {
			p, ok := x.pools[poolKey{namespace, m.Name}]
			if slices.ContainsFunc(all, func(had Member) bool { return had.Name == m.Name }) {
				continue // a pool that two of the env's entries name counts once, by the first that fits
			}
			if ok && !p.Deleting && p.ofCluster(c.ClusterID, e.Spec) && (p.Owner == e.UID || e.Owner == p.UID) {
				all = append(all, Member{p, m.Config})
			}
		}
	}
	return all
}

// Member reports whether the pool is a member of the env that claims may go to.
func (x *Index) Member(namespace, env, pool string) bool {
	return slices.ContainsFunc(x.Members(namespace, env), func(m Member) bool { return m.Name == pool })
}

// MayMakeOf reports whether a member of the env may make a sandbox of that ID. An env whose
// members are not there yet has reserved nothing.
func (x *Index) MayMakeOf(namespace, env, id string) bool {
	members := x.Members(namespace, env)
	return len(members) == 0 && x.MayMake(namespace, "", id) ||
		slices.ContainsFunc(members, func(m Member) bool { return x.MayMake(namespace, m.Name, id) })
}

// ClaimMembers are Members, as a claim chooses among them.
func (x *Index) ClaimMembers(namespace, env string) []routing.Member {
	all := x.Members(namespace, env)
	out := make([]routing.Member, 0, len(all))
	for _, m := range all {
		out = append(out, routing.Member{
			Pool: m.Name, Priority: m.Config.Priority, ScaleUpPriority: m.Config.ScaleUpPriority,
			Saturated: m.Full || time.Now().Before(m.SaturatedUntil),
		})
	}
	return out
}

func (x *Index) envStore() *store {
	return &store{
		kind: kindEnvs,
		read: func(obj any) (string, func(), error) {
			o, ok := obj.(*v1alpha1.SandboxEnv)
			if !ok {
				return "", nil, unexpected(obj)
			}
			return o.Namespace + "/" + o.Name, func() { x.setEnv(o) }, nil
		},
		gone:     x.removeEnv,
		keys:     x.envKeys,
		progress: func(uint64) {},
	}
}

func (x *Index) setEnv(o *v1alpha1.SandboxEnv) {
	info := EnvInfo{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, CreatedAt: o.CreationTimestamp.Time,
		Deleting: o.DeletionTimestamp != nil, Owner: ownerOf(o), Spec: &o.Spec,
	}
	x.mu.Lock()
	x.envs[poolKey{o.Namespace, o.Name}] = info
	x.mu.Unlock()
}

// removeEnv removes the env of the store's key, namespace/name.
func (x *Index) removeEnv(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	x.mu.Lock()
	delete(x.envs, poolKey{namespace, name})
	x.mu.Unlock()
}

func (x *Index) envKeys() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	keys := make([]string, 0, len(x.envs))
	for k := range x.envs {
		keys = append(keys, k.namespace+"/"+k.name)
	}
	return keys
}

// ownerOf is the UID of the object's controller; empty if it has none.
func ownerOf(o metav1.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return owner.UID
	}
	return ""
}
