package gateway

import (
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/index"
)

// pools is the index's view of pools in extproc's words.
type pools struct{ index *index.Index }

// Pool implements extproc.Pools.
func (p pools) Pool(namespace, name string) (v1alpha1.FirstRequestAccess, bool) {
	info, ok := p.index.Pool(namespace, name)
	return info.Access(), ok
}

// Reach implements extproc.Pools.
func (p pools) Reach(namespace, name string) v1alpha1.FirstRequestReach {
	return p.index.Reach(namespace, name)
}

// MayMake implements extproc.Pools.
func (p pools) MayMake(namespace, name, id string) bool { return p.index.MayMake(namespace, name, id) }
