package gateway

import (
	"context"
	"unique"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/gateway/limits"
	"github.com/sandlane/sandlane/routecache"
)

// room joins the counts of package limits to extproc.Room.
type room struct {
	*limits.Waiting
	*limits.OpenRequests
}

// waitKeyed is Wait for a call of the REST API, which has shown a key.
func (r room) waitKeyed(namespace, id string) (leave func(), err error) {
	return r.Wait(namespace, id, true)
}

// assembleRoom makes the counts of what waits and what is open. The fast path and the poller
// are made after it.
func (g *gateway) assembleRoom() {
	g.limits = limits.NewReader(limits.Options{
		MaxStreams: g.o.MaxStreams, OpenOfSandbox: g.o.MaxOpen, Snapshots: g.o.MaxSnapshots, SnapshotsOfKey: g.o.MaxSnapshotsPerKey,
	})
	admin := envoy.Admin{Socket: g.o.path(EnvoyAdminSocket)}
	g.room = room{limits.NewWaiting(g.limits, g.o.MaxStreams), limits.NewOpenRequests(limits.OpenOptions{
		Limits: g.limits, Room: envoy.SandboxRequests(g.o.MaxStreams),
		Total: func(ctx context.Context) (limits.Load, error) {
			load, err := admin.LoadOfSandboxes(ctx)
			return limits.Load(load), err
		},
		Refresh: func(ctx context.Context) error { return g.poller.Refresh(ctx) },
	})}
}

// withdraw takes the routes of pools out of the table that Envoy answers from.
func (g *gateway) withdraw(of func(unique.Handle[routecache.Pool]) bool) {
	g.cache.Range(func(r *routecache.Route) bool {
		if of(r.Pool) {
			g.cache.Retract(r.SandboxID)
		}
		return true
	})
}
