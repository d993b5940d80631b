package index

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// The states of an Index:
//
// An Index is started once, is synced when each stream has had its first list
// (always a consistent one), and stays so: a broken watch is resumed or listed
// anew. Relist makes all start over, for a gateway that rejoins. A list of pods that is
// older than what was seen is of an API server that has gone back: it is applied, the
// hook PodsRewound drops what was concluded before, and the next list counts. mu guards
// the records; records are immutable. While the API server is away the index becomes
// stale without notice; the gateway's lease keeps that safe.

// Options configure an Index.
type Options struct {
	// Client lists and watches; it must not be a cached one. Required.
	Client client.WithWatch
	// Hooks are called for changes.
	Hooks Hooks
	// Log is for what goes wrong with the watches. Nil means slog.Default().
	Log *slog.Logger
}

// Index is the gateway's view. Its methods are safe for concurrent use.
type Index struct {
	hooks   Hooks
	sources []*source
	metrics *metrics
	log     *slog.Logger
	podRV   atomic.Uint64
	rewound bool                      // the last list of pods is to be made anew; only its source's goroutine uses it
	names   atomic.Pointer[poolNames] // never nil

	// mu guards the maps; the records in them are immutable. Each map is changed
	// by the goroutine of its source alone.
	mu        sync.RWMutex
	pods      map[string]*pod     // by UID
	sandboxes map[string]*sandbox // by ID
	pools     map[poolKey]PoolInfo
	envs      map[poolKey]EnvInfo
	templates map[string]*v1alpha1.SandboxTemplateSpec // by name; not changed once here
	paused    map[poolKey]int                          // how many of the pool's sandboxes are paused; no entry for none
}

// New returns an Index that knows nothing until it is started.
func New(o Options) *Index {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	x := &Index{
		hooks: o.Hooks, metrics: newMetrics(), log: o.Log,
		pods: map[string]*pod{}, sandboxes: map[string]*sandbox{}, pools: map[poolKey]PoolInfo{}, envs: map[poolKey]EnvInfo{},
		templates: map[string]*v1alpha1.SandboxTemplateSpec{}, paused: map[poolKey]int{},
	}
	x.hooks.complete()
	x.names.Store(&poolNames{})
	poolPods, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil)
	if err != nil {
		panic("index: " + err.Error()) // the label is a constant
	}
	add := func(s *store, expected client.Object, newList func() client.ObjectList, selector labels.Selector) {
		s.log = o.Log
		s.events = x.metrics.events.WithLabelValues(s.kind).Inc
		src := newSource(o.Client, expected, newList, selector, s)
		s.relist = func() { src.restart() }
		s.listed = func(int) {
			x.metrics.lists.WithLabelValues(s.kind).Inc()
			src.haveListed()
		}
		x.sources = append(x.sources, src)
	}
	add(x.podStore(), &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, labels.NewSelector().Add(*poolPods))
	add(x.sandboxStore(), &v1alpha1.Sandbox{}, func() client.ObjectList { return &v1alpha1.SandboxList{} }, nil)
	add(x.poolStore(), &v1alpha1.SandboxPool{}, func() client.ObjectList { return &v1alpha1.SandboxPoolList{} }, nil)
	add(x.envStore(), &v1alpha1.SandboxEnv{}, func() client.ObjectList { return &v1alpha1.SandboxEnvList{} }, nil)
	add(x.templateStore(), &v1alpha1.SandboxTemplate{}, func() client.ObjectList { return &v1alpha1.SandboxTemplateList{} }, nil)
	return x
}

// Start watches until the context ends, and returns nil. Call once.
func (x *Index) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	for _, s := range x.sources {
		watches.Go(func() { s.start(ctx) })
	}
	watches.Wait()
	return nil
}

// NeedLeaderElection makes it run in every gateway.
func (x *Index) NeedLeaderElection() bool { return false }

// Synced reports whether every kind has been listed.
func (x *Index) Synced() bool {
	for _, s := range x.sources {
		if !s.synced() {
			return false
		}
	}
	return true
}

// WaitSynced returns nil once every kind has been listed, or the context's error.
func (x *Index) WaitSynced(ctx context.Context) error {
	return x.waitFor(ctx, make([]uint64, len(x.sources)))
}

// Relist lists everything anew, consistently, and returns nil once all of it is
// applied, with its hooks: what a gateway that lost its lease does before it
// routes again. It then drops its routes (the cache's DropAll), after Relist: one
// put meanwhile may be of a sandbox that came and went unseen, for which no hook
// is called. An error is the context's; the lists go on.
func (x *Index) Relist(ctx context.Context) error {
	runs := make([]uint64, len(x.sources))
	for i, s := range x.sources {
		runs[i] = s.restart()
	}
	return x.waitFor(ctx, runs)
}

func (x *Index) waitFor(ctx context.Context, runs []uint64) error {
	for i, s := range x.sources {
		if err := s.wait(ctx, max(runs[i], 1)); err != nil {
			return err
		}
	}
	return nil
}

// PodRV returns how far the pod watch has come: the resourceVersion up to which
// all pod events are applied, 0 before the first list.
func (x *Index) PodRV() uint64 { return x.podRV.Load() }

// Resolve returns what the watches show of a sandbox.
func (x *Index) Resolve(id string) routing.Answer {
	x.mu.RLock()
	s := x.sandboxes[id]
	var p *pod
	if s != nil {
		p = x.pods[s.podUID]
	}
	x.mu.RUnlock()
	return decide(id, s, p)
}

// RangeClaims calls f for each claimed pod with a routable address until f returns
// false: address, namespace, sandbox ID and claim ID. Two pods may show one address for a
// while. f must not block: no record changes meanwhile.
func (x *Index) RangeClaims(f func(addr netip.Addr, namespace, id, claim string) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, p := range x.pods {
		if p.claim != "" && p.sandbox != "" && p.addr.IsValid() && !f(p.addr, p.namespace.Value(), p.sandbox, p.claim) {
			return
		}
	}
}
