package gateway

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/controlplane/lastcreate"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// demand tells controllers what waits in the schedulers, and when pools were last asked
// for sandboxes.
type demand struct {
	set     *schedule.Set
	creates *lastcreate.Tracker
}

// PoolDemand implements controlplane.DemandSource.
func (d demand) PoolDemand() []controlplane.PoolDemand {
	now, pools := time.Now(), map[types.NamespacedName]controlplane.PoolDemand{}
	for key, w := range d.set.Waiting() {
		pools[key] = controlplane.PoolDemand{Namespace: key.Namespace, Pool: key.Name, Waiting: w.IDs, Oldest: now.Sub(w.Oldest), Created: -1}
	}
	for key, last := range d.creates.All() {
		one, ok := pools[key]
		if !ok {
			one = controlplane.PoolDemand{Namespace: key.Namespace, Pool: key.Name}
		}
		one.Created = max(now.Sub(last), 0)
		pools[key] = one
	}
	all := make([]controlplane.PoolDemand, 0, len(pools))
	for _, one := range pools {
		all = append(all, one)
	}
	return all
}
