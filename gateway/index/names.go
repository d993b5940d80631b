package index

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// poolNames has the rules of pools for sandboxes that are made by name: which requests
// may reach them, and which pool has reserved which IDs. It is immutable, and replaced
// when a pool's rules change, so that every request can read it without a lock.
type poolNames struct {
	reach map[poolKey]v1alpha1.FirstRequestReach
	// own are the prefixes of each namespace, longest first, and of equal length by text.
	own map[string][]idPrefix
	// binding are those that bind other namespaces, oldest first.
	binding []idPrefix
}

// idPrefix is the prefix of one pool.
type idPrefix struct {
	prefix  string
	pool    poolKey
	created time.Time
	uid     types.UID
}

// nameRules is the part of a pool that poolNames is made of.
type nameRules struct {
	reach   v1alpha1.FirstRequestReach
	prefix  string
	binding bool
	created int64
	uid     types.UID
}

func namesOf(p PoolInfo) nameRules {
	r := nameRules{reach: v1alpha1.ReachOf(p.Spec), created: p.CreatedAt.UnixNano(), uid: p.UID}
	if p.Spec != nil && p.Spec.FirstRequest != nil {
		r.prefix = p.Spec.FirstRequest.IDPrefix
		// The status may be of an earlier spec.
		r.binding = r.prefix != "" && p.BindingPrefix == r.prefix
	}
	return r
}

func newPoolNames(pools map[poolKey]PoolInfo) *poolNames {
	n := &poolNames{reach: make(map[poolKey]v1alpha1.FirstRequestReach, len(pools)), own: map[string][]idPrefix{}}
	for key, p := range pools {
		r := namesOf(p)
		n.reach[key] = r.reach
		if r.prefix == "" {
			continue
		}
		one := idPrefix{r.prefix, key, p.CreatedAt, p.UID}
		n.own[key.namespace] = append(n.own[key.namespace], one)
		if r.binding {
			n.binding = append(n.binding, one)
		}
	}
	for _, own := range n.own {
		slices.SortFunc(own, func(a, b idPrefix) int {
			return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), cmp.Compare(a.prefix, b.prefix))
		})
	}
	slices.SortFunc(n.binding, func(a, b idPrefix) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.uid, b.uid))
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
// pool. Of the prefixes that bind other namespaces and fit the ID, that of the oldest pool
// says which namespace has the ID. In the pool's own namespace, the longest prefix that fits
// must be the pool's, if one fits.
func (x *Index) MayMake(namespace, pool, id string) bool {
	names := x.names.Load()
	fits := func(p idPrefix) bool { return strings.HasPrefix(id, p.prefix) }
	if i := slices.IndexFunc(names.binding, fits); i >= 0 && names.binding[i].pool.namespace != namespace {
		return false
	}
	own := names.own[namespace]
	i := slices.IndexFunc(own, fits)
	return i < 0 || slices.ContainsFunc(own[i:], func(p idPrefix) bool {
		return p.prefix == own[i].prefix && p.pool.name == pool
	})
}
