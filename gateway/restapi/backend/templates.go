package backend

import (
	"slices"
	"strings"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// Templates are the envs and pools as users of the REST API see them, from the index:
// an env is a template of its name, and so is a pool that is no member of an env, and of
// the aliases in its annotation. A member can be named all the same. An env that was made
// for a pool has the pool's aliases.
type Templates struct {
	index *index.Index
	node  *NodeSize
}

// NewTemplates makes them of the index and what is known of nodes.
func NewTemplates(x *index.Index, node *NodeSize) *Templates { return &Templates{index: x, node: node} }

var _ restapi.Templates = (*Templates)(nil)

// Template implements restapi.Templates. An env comes before a pool, a pool's own name
// before the aliases of others; of several pools with one alias the oldest has it.
func (t *Templates) Template(namespace, name string) (restapi.Template, bool) {
	if env, ok := t.index.Env(namespace, name); ok && !env.Deleting {
		return t.describeEnv(env), true
	}
	if pool, ok := t.index.Pool(namespace, name); ok && !pool.Deleting {
		return t.describe(pool), true
	}
	for _, pool := range t.pools(namespace) {
		if slices.ContainsFunc(pool.Aliases, func(alias string) bool { return strings.EqualFold(alias, name) }) {
			if env, ok := t.index.Env(namespace, pool.Name); ok && !env.Deleting && env.Owner == pool.UID {
				return t.describeEnv(env), true
			}
			return t.describe(pool), true
		}
	}
	return restapi.Template{}, false
}

// Templates implements restapi.Templates: the envs and pools that run sandboxd, envs first,
// then oldest first. From others no sandbox can be created here, only claimed by a first
// request.
func (t *Templates) Templates(namespace string) []restapi.Template {
	all := []restapi.Template{}
	members := map[string]bool{}
	for _, env := range t.index.Envs() {
		if env.Namespace != namespace || env.Deleting {
			continue
		}
		for _, m := range t.index.Members(namespace, env.Name) {
			members[m.Name] = true
		}
		if spec := t.templateOf(env); spec != nil && spec.RunsSandboxd() {
			all = append(all, t.describeEnv(env))
		}
	}
	for _, pool := range t.pools(namespace) {
		if members[pool.Name] || pool.Build != "" && !t.stands(pool) {
			continue
		}
		if spec := t.index.Template(pool); spec != nil && spec.RunsSandboxd() {
			all = append(all, t.describe(pool))
		}
	}
	return all
}

// stands reports whether a build's pool is the one that stands for its template: of the pools with
// names that of the default tag, else the newest.
func (t *Templates) stands(pool index.PoolInfo) bool {
	if pool.Template == "" || len(pool.Aliases) == 0 { // a builder's, or an older build's
		return false
	}
	if slices.Contains(pool.Aliases, pool.Template) {
		return true
	}
	named := slices.DeleteFunc(t.pools(pool.Namespace), func(p index.PoolInfo) bool {
		return p.Template != pool.Template || len(p.Aliases) == 0
	})
	return named[len(named)-1].Name == pool.Name && !slices.ContainsFunc(named, func(p index.PoolInfo) bool { return slices.Contains(p.Aliases, p.Template) })
}

// pools are those of a namespace that are there to stay, oldest first.
func (t *Templates) pools(namespace string) []index.PoolInfo {
	all := slices.DeleteFunc(t.index.Pools(), func(p index.PoolInfo) bool { return p.Namespace != namespace || p.Deleting })
	slices.SortFunc(all, func(a, b index.PoolInfo) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// templateOf is what the pods of the env's members are made from: a pool that owns its
// env may have a template of its own.
func (t *Templates) templateOf(env index.EnvInfo) *v1alpha1.SandboxTemplateSpec {
	if members := t.index.Members(env.Namespace, env.Name); len(members) > 0 {
		return t.index.Template(members[0].PoolInfo)
	}
	return t.index.TemplateNamed(env.Spec.TemplateRef.Name)
}

// OfPool implements restapi.Templates.
func (t *Templates) OfPool(namespace, name string) (restapi.Template, bool) {
	pool, ok := t.index.Pool(namespace, name)
	if !ok || pool.Deleting {
		return restapi.Template{}, false
	}
	return t.describe(pool), true
}

func (t *Templates) describeEnv(env index.EnvInfo) restapi.Template {
	spec := t.templateOf(env)
	z := t.node.of(spec)
	d := restapi.Template{
		ID: env.Name, SandboxEnv: env.Name, CreatedAt: env.CreatedAt, MaxLifetime: v1alpha1.MaxLifetime,
		CPUCount: z.cpus, MemoryMB: z.memoryMB, DiskMB: z.diskMB,
	}
	var pools []*v1alpha1.SandboxPoolSpec
	for _, m := range t.index.Members(env.Namespace, env.Name) {
		pools = append(pools, m.Spec)
	}
	setPauses(&d, spec, pools)
	d.ByName = len(pools) > 0 && !slices.ContainsFunc(pools, func(p *v1alpha1.SandboxPoolSpec) bool { return p.Egress != v1alpha1.EgressByName })
	if pool, ok := t.index.Pool(env.Namespace, env.Name); ok && env.Owner != "" && env.Owner == pool.UID {
		d.Aliases, d.Adopted = pool.Aliases, pool.Name
	}
	return d
}

func (t *Templates) describe(pool index.PoolInfo) restapi.Template {
	spec := t.index.Template(pool)
	z := t.node.of(spec)
	d := restapi.Template{
		ID: pool.Name, Aliases: pool.Aliases, Pool: pool.Name, CreatedAt: pool.CreatedAt, MaxLifetime: v1alpha1.MaxLifetime,
		CPUCount: z.cpus, MemoryMB: z.memoryMB, DiskMB: z.diskMB,
	}
	if pool.Template != "" {
		d.ID, d.Build = pool.Template, pool.Build
		for _, other := range t.pools(pool.Namespace) {
			if other.Template == pool.Template && other.Name != pool.Name {
				d.OtherPools = append(d.OtherPools, other.Name)
			}
		}
	}
	setPauses(&d, spec, []*v1alpha1.SandboxPoolSpec{pool.Spec})
	d.ByName = byName(pool)
	return d
}
