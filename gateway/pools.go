package gateway

import (
	"slices"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
)

// pools adapts the index to extproc.Pools.
type pools struct{ index *index.Index }

// Pool implements extproc.Pools.
func (p pools) Pool(namespace, name string) (v1alpha1.FirstRequestAccess, bool) {
	info, ok := p.index.Pool(namespace, name)
	return info.Access(), ok
}

// Env implements extproc.Pools.
func (p pools) Env(namespace, name string) (v1alpha1.FirstRequestAccess, bool) {
	return p.index.EnvAccess(namespace, name)
}

// Member implements extproc.Pools.
func (p pools) Member(namespace, env, pool string) bool {
	return slices.ContainsFunc(p.index.Members(namespace, env), func(m index.Member) bool { return m.Name == pool })
}

// MayMakeOf implements extproc.Pools. An env whose members are not there yet has
// reserved nothing.
func (p pools) MayMakeOf(namespace, env, id string) bool {
	members := p.index.Members(namespace, env)
	return len(members) == 0 && p.index.MayMake(namespace, "", id) ||
		slices.ContainsFunc(members, func(m index.Member) bool { return p.index.MayMake(namespace, m.Name, id) })
}

// members are the pools of an env, for package activation.
func (p pools) members(namespace, env string) []activation.Member {
	all := p.index.Members(namespace, env)
	out := make([]activation.Member, 0, len(all))
	for _, m := range all {
		out = append(out, activation.Member{
			Pool: m.Name, Priority: m.Config.Priority, ScaleUpPriority: m.Config.ScaleUpPriority,
			Saturated: m.Full || time.Now().Before(m.SaturatedUntil),
		})
	}
	return out
}

// Reach implements extproc.Pools.
func (p pools) Reach(namespace, name string) v1alpha1.FirstRequestReach {
	return p.index.Reach(namespace, name)
}

// ReachOfEnv implements extproc.Pools.
func (p pools) ReachOfEnv(namespace, env, pool string) v1alpha1.FirstRequestReach {
	return p.index.ReachOfEnv(namespace, env, pool)
}

// MayMake implements extproc.Pools.
func (p pools) MayMake(namespace, name, id string) bool { return p.index.MayMake(namespace, name, id) }
