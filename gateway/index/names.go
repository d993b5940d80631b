package index

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// poolNames has the rules of pools for sandboxes that are made by name: which requests
// may reach them, and which pool has reserved which IDs. It is immutable, and replaced
// when a pool's rules change, so that every request can read it without a lock.
type poolNames struct {
	reach    map[poolKey]v1alpha1.FirstRequestReach
	prefixes []idPrefix // longest first; of equal length by text, then oldest first
}

// idPrefix is the prefix of one pool.
type idPrefix struct {
	prefix  string
	pool    poolKey
	created time.Time
}

// nameRules is the part of a pool that poolNames is made of.
type nameRules struct {
	reach   v1alpha1.FirstRequestReach
	prefix  string
	created int64
}

func namesOf(p PoolInfo) nameRules {
	r := nameRules{reach: v1alpha1.ReachOf(p.Spec), created: p.CreatedAt.UnixNano()}
	if p.Spec != nil && p.Spec.FirstRequest != nil {
		r.prefix = p.Spec.FirstRequest.IDPrefix
	}
	return r
}

func newPoolNames(pools map[poolKey]PoolInfo) *poolNames {
	n := &poolNames{reach: make(map[poolKey]v1alpha1.FirstRequestReach, len(pools))}
	for key, p := range pools {
		r := namesOf(p)
		n.reach[key] = r.reach
		if r.prefix != "" {
			n.prefixes = append(n.prefixes, idPrefix{r.prefix, key, p.CreatedAt})
		}
	}
	slices.SortFunc(n.prefixes, func(a, b idPrefix) int {
		return cmp.Or(
			cmp.Compare(len(b.prefix), len(a.prefix)), cmp.Compare(a.prefix, b.prefix), a.created.Compare(b.created),
			cmp.Compare(a.pool.namespace, b.pool.namespace), cmp.Compare(a.pool.name, b.pool.name),
		)
	})
	return n
}

// Reach says what requests for the sandboxes made by name from a pool must show;
// of an unknown pool, the most. It takes no lock and allocates nothing.
func (x *Index) Reach(namespace, pool string) v1alpha1.FirstRequestReach {
	if r, ok := x.names.Load().reach[poolKey{namespace, pool}]; ok {
		return r
	}
	return v1alpha1.ReachKey
}

// MayMake reports whether a first request may make a sandbox of that ID from the
// pool: no pool's prefix fits the ID, or the longest prefix that fits is this pool's.
// If pools of several namespaces have that prefix, only those of the oldest pool's
// namespace may.
func (x *Index) MayMake(namespace, pool, id string) bool {
	prefixes := x.names.Load().prefixes
	i := slices.IndexFunc(prefixes, func(p idPrefix) bool { return strings.HasPrefix(id, p.prefix) })
	if i < 0 || prefixes[i].pool == (poolKey{namespace, pool}) {
		return true
	}
	owner := prefixes[i]
	return owner.pool.namespace == namespace && slices.ContainsFunc(prefixes, func(p idPrefix) bool {
		return p.prefix == owner.prefix && p.pool == poolKey{namespace, pool}
	})
}
