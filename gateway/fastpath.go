package gateway

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"
	"unique"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/fastpath"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routecache"
)

// fastPath is the table from which Envoy answers hits; its Table is nil if there is none.
// Its folder is settled even then: the process before this one may have left a table in it.
type fastPath struct {
	*fastpath.Table
	folder string
	log    *slog.Logger
	mu     sync.Mutex
	// reach is each pool's reach as of the last call of poolChanged for it. Guarded by mu.
	reach map[routecache.Pool]v1alpha1.FirstRequestReach
	index poolReach
	cache *routecache.Cache
}

// poolReach says what requests for a pool's sandboxes must show. The index satisfies
// it.
type poolReach interface {
	Reach(namespace, pool string) v1alpha1.FirstRequestReach
}

// assembleFastPath opens the table, if there is to be one. Whatever stands in its way
// costs the fast path alone: ExtProc answers.
func (g *gateway) assembleFastPath() {
	f := &fastPath{folder: g.o.FastPathFolder, log: g.o.Log, index: g.index, cache: g.cache, reach: map[routecache.Pool]v1alpha1.FirstRequestReach{}}
	g.fast = f
	if !g.o.FastPath || f.folder == "" {
		return
	}
	if err := envoy.FastPathProven(runtime.GOARCH); err != nil {
		g.o.Log.Warn("ExtProc answers every request", "error", err)
		return
	}
	table, err := fastpath.Open(fastpath.Options{
		Folder: f.folder, Size: g.o.CacheSize, Now: g.usage.Now, Open: f.open, Full: g.room.Over,
		Lease:        func() time.Duration { return g.member.Remaining() },
		EnvoyVersion: envoy.Admin{Socket: g.o.path(EnvoyAdminSocket)}.Version, Tested: envoy.FastPathVersions,
		Hits: func(n uint64) { g.extproc.CountHits(n) }, Log: g.o.Log,
	})
	if err == nil {
		err = table.RegisterMetrics(g.reg)
	}
	if err != nil {
		g.o.Log.Warn("the fast path is off: ExtProc answers every request", "error", err)
		return
	}
	f.Table = table
	g.cache.SetMirror(table)
	g.usage.Before(table.Fold)
	g.room.FastPath(table.Answered, f.withdraw)
}

// tellWaiting logs after settleQuiet, and then after pauses that double up to settleSay.
const settleQuiet, settleSay = 5 * time.Second, 10 * time.Minute

// settle makes sure that Envoy answers from no table that an earlier process has left. It
// must have returned before the lease is written, and waits for as long as a worker of
// Envoy is stuck.
func (f *fastPath) settle(ctx context.Context, admin envoy.Admin) error {
	if f.folder == "" {
		return nil
	}
	defer f.tellWaiting(ctx)()
	unknown := f.Table != nil && f.Created()
	if f.Table == nil {
		err := fastpath.SettleFolder(ctx, f.folder)
		if !errors.Is(err, fastpath.ErrNoTable) {
			return err
		}
		unknown = true
	}
	if unknown { // a table may have been removed beside a living Envoy
		if gone, err := admin.Gone(ctx); err != nil || !gone {
			if err := fastpath.WaitTrust(ctx); err != nil {
				return err
			}
		}
	}
	if f.Table == nil {
		return nil
	}
	return f.Settle(ctx)
}

// tellWaiting logs what settle waits for, until the function that it returns is called.
func (f *fastPath) tellWaiting(ctx context.Context) (stop func()) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		for delays := backoff.Doubling(settleQuiet, settleSay); backoff.Sleep(ctx, delays.Step()); {
			f.log.Warn("the gateway does not serve yet: it waits until no worker of Envoy reads the fast path's table of an earlier process; if one is stuck, end that Envoy",
				"folder", f.folder, "waited", time.Since(began).Round(time.Second))
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

// start keeps the table alive until ctx ends.
func (f *fastPath) start(ctx context.Context) error {
	if f.Table == nil {
		return nil
	}
	return f.Start(ctx)
}

// distrust ends all answers of Envoy from the table, as the lease is lost.
func (f *fastPath) distrust() {
	if f.Table != nil {
		f.Distrust(false)
	}
}

// open reports whether requests for the sandbox need neither token nor key, unless it
// is private: see admit in extproc.
func (f *fastPath) open(r *routecache.Route) bool {
	pool := r.InPool()
	return v1alpha1.GeneratedID(r.SandboxID) || f.index.Reach(pool.Namespace, pool.Name) == v1alpha1.ReachPublic
}

// poolChanged takes the routes of a pool's sandboxes out of the table if what their
// requests must show has changed: the next hit of ExtProc decides anew. The index has
// the change already, so a route that is published meanwhile is judged by it.
func (f *fastPath) poolChanged(namespace, name string, exists bool) {
	pool := routecache.Pool{Namespace: namespace, Name: name}
	reach := f.index.Reach(namespace, name)
	f.mu.Lock()
	was, known := f.reach[pool]
	f.reach[pool] = reach
	if !exists {
		delete(f.reach, pool)
	}
	f.mu.Unlock()
	if known && was == reach {
		return
	}
	changed := routecache.PoolOf(namespace, name)
	f.withdraw(func(p unique.Handle[routecache.Pool]) bool { return p == changed })
}

// withdraw takes the routes of pools out of the table.
func (f *fastPath) withdraw(of func(unique.Handle[routecache.Pool]) bool) {
	f.cache.Range(func(r *routecache.Route) bool {
		if of(r.Pool) {
			f.cache.Retract(r.SandboxID)
		}
		return true
	})
}
