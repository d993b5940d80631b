package controlplane

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/controlplane/lastcreate"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// DemandSource says what waits for pods at a gateway.
type DemandSource interface {
	// PoolDemand returns the pools where something waits, or that were asked for
	// sandboxes in this process's life.
	PoolDemand() []PoolDemand
}

// PoolDemand is what a gateway knows of the demand for a pool.
type PoolDemand struct {
	Namespace, Pool string
	// Waiting is a hash of the ID of each sandbox that waits for a pod (schedule.HashID).
	Waiting []uint64
	// Oldest is how long the longest of them has waited.
	Oldest time.Duration
	// Created is how long ago the pool was last asked for a sandbox; below 0: not in this
	// process's life.
	Created time.Duration
}

// LocalDemand is a gateway's DemandSource: what waits in its schedulers, and when pools were last
// asked for sandboxes.
type LocalDemand struct {
	Set     *schedule.Set
	Creates *lastcreate.Tracker
}

// PoolDemand implements DemandSource.
func (d LocalDemand) PoolDemand() []PoolDemand {
	now, pools := time.Now(), map[types.NamespacedName]PoolDemand{}
	for key, w := range d.Set.Waiting() {
		pools[key] = PoolDemand{Namespace: key.Namespace, Pool: key.Name, Waiting: w.IDs, Oldest: now.Sub(w.Oldest), Created: -1}
	}
	for key, last := range d.Creates.All() {
		one, ok := pools[key]
		if !ok {
			one = PoolDemand{Namespace: key.Namespace, Pool: key.Name}
		}
		one.Created = max(now.Sub(last), 0)
		pools[key] = one
	}
	all := make([]PoolDemand, 0, len(pools))
	for _, one := range pools {
		all = append(all, one)
	}
	return all
}

// PoolDemand implements the gRPC service.
func (s *Server) PoolDemand(context.Context, *controlplanepb.PoolDemandRequest) (*controlplanepb.PoolDemandResponse, error) {
	s.o.Member.Reached()
	out := &controlplanepb.PoolDemandResponse{Holder: s.o.Member.Holder()}
	for _, d := range s.o.Demand.PoolDemand() {
		out.Pools = append(out.Pools, &controlplanepb.PoolDemand{
			Namespace: d.Namespace, Pool: d.Pool, Waiting: d.Waiting, OldestNanos: int64(d.Oldest), CreatedNanos: int64(max(d.Created, -1)),
		})
	}
	return out, nil
}
