package gateway

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/lastcreate"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/credentials"
	egresskeys "github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/holds"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/gateway/limits"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/routecache"
)

// assemble makes the parts and joins them.
func assemble(o Options) (*gateway, error) {
	g := &gateway{o: o, reg: prometheus.NewRegistry(), drain: newDrain(o)}
	g.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if o.BuildInfo != nil {
		g.reg.MustRegister(o.BuildInfo)
	}
	cfg := rest.CopyConfig(o.Config)
	cfg.UserAgent, cfg.QPS = "sandlane-gateway", -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: kubeclient.RESTMapper(scheme)})
	if err != nil {
		return nil, fmt.Errorf("make an API client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make an API client: %w", err)
	}
	g.tokens = credentials.NewTokens(c, o.SystemNamespace)
	g.initKeys = credentials.NewInitSigner(c, o.SystemNamespace)
	g.keys = credentials.NewVerifier(credentials.VerifierOptions{
		Secrets: clientset.CoreV1().Secrets(o.KeyNamespace), Namespaces: clientset.CoreV1().Namespaces(), Metrics: credentials.NewMetrics(g.reg), Log: o.Log,
	})
	a, err := g.assembleAgent(c)
	if err != nil {
		return nil, err
	}
	if err := g.assembleRoutes(c, a); err != nil {
		return nil, err
	}
	g.drain.noteOpen = g.poller.Refresh
	if err := g.assembleControl(clientset); err != nil {
		return nil, err
	}
	g.drain.refuse = g.member.Abandon
	g.extproc, err = extproc.NewServer(extproc.Options{
		Socket: o.path(ExtProcSocket), Cache: g.cache,
		Resolver: g.own, Activator: g.activator, Pools: g.index,
		Keys: g.keys, Tokens: g.tokens, Lease: g.member, Activity: g.usage, Holds: g.holds, Room: g.room, Now: g.usage.Now,
		Ready: g.ready, FirstRequestPool: o.FirstRequestPool, MaxWait: o.MaxWait,
		Registerer: g.reg, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := g.assembleAPI(c, clientset, a); err != nil {
		return nil, err
	}
	if o.MetricsAddress != "" {
		if g.metrics, err = net.Listen("tcp", o.MetricsAddress); err != nil {
			return nil, fmt.Errorf("listen for metrics: %w", err)
		}
	}
	return g, nil
}

// assembleAgent makes the parts that call sandboxd.
func (g *gateway) assembleAgent(c client.Client) (a *sandboxdclient.Agent, err error) {
	a = sandboxdclient.New(g.tokens, g.initKeys, func() bool { return g.member.Held() })
	a.Authority = func(ctx context.Context) ([]byte, error) {
		public, err := egresskeys.ReadPublic(ctx, c, g.o.SystemNamespace)
		if err != nil {
			return nil, err
		}
		return public.Authority, nil
	}
	if g.readiness, err = sandboxdclient.NewReadiness(a, c, g.o.CacheSize, g.o.Log); err != nil {
		return nil, err
	}
	return a, nil
}

// assembleRoutes makes what answers "where does this sandbox live": the cache,
// the index that feeds it, and activation with its schedulers.
func (g *gateway) assembleRoutes(c client.WithWatch, a *sandboxdclient.Agent) error {
	g.cache = routecache.New(g.o.CacheSize)
	g.usage = inuse.NewRegistry(nil)
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(g.o.Name))
	g.set = schedule.NewSet(c, schedule.WithMetrics(schedule.NewMetrics(g.reg)), schedule.WithSeed(seed.Sum64()), schedule.WithLogger(g.o.Log))
	g.index = index.New(index.Options{Client: c, Log: g.o.Log, Hooks: index.Hooks{
		SandboxChanged: g.cache.Invalidate,
		PodsSeen:       g.cache.PodsSeen,
		PodsRewound: func() { // the routes last: they name uses
			g.usage.Rewind()
			g.own.rewind()
			g.cache.Rewind()
		},
		PodAvailable:   g.set.Offer,
		PodUnavailable: g.set.Forget,
		PoolChanged: func(namespace, name string, exists bool) {
			g.fast.poolChanged(namespace, name, exists)
			g.set.PoolChanged(namespace, name, exists)
		},
		SandboxOrPodChanged: func(id string) { g.activator.NoteChange(id) },
		ClaimEnded:          g.usage.ClaimEnded,
		ReleaseBegun: func(id, claim, token string) {
			g.usage.Hold(id, claim, token)
			g.cache.Retract(id)
		},
		ReleaseOff: func(id, claim, token string) { g.usage.Lift(id, claim, token) },
	}})
	g.usage.SetIndex(g.index)
	g.live = index.NewLive(index.LiveOptions{Reader: c})
	pauser, err := pause.New(c, g.cache, a, pause.NewMetrics(g.reg))
	if err != nil {
		return err
	}
	if g.own, err = newOwnView(g.index, g.live, g.readiness, pauser); err != nil {
		return err
	}
	g.creates = lastcreate.NewTracker(c, 0)
	g.creates.OnFailure(func(pools int, err error) {
		g.o.Log.Warn("when pools were last asked for a sandbox could not be noted", "pools", pools, "error", err)
	})
	g.creates.Known(g.index.LastCreate)
	g.activator = activation.New(activation.Options{
		Client: c, Schedulers: g.set.Get, Members: g.index.ClaimMembers, Cache: g.cache, ClaimUse: g.usage.ClaimUse,
		Ready: g.makeReady, Restorable: g.restorable, Fits: g.fits, Known: g.own.known, ReadyKnown: g.readiness.ReadyKnown, Wake: g.own.pauser.Wake,
		OnNewRequest: func(namespace, pool string) { g.creates.Bump(types.NamespacedName{Namespace: namespace, Name: pool}) },
		Timeouts:     g.index.FirstRequestTimeouts, Egress: g.index.FirstRequestEgress, NoStart: g.index.NoStart,
		Metrics: activation.NewMetrics(g.reg), Log: g.o.Log,
	})
	g.assembleRoom()
	g.poller = inuse.NewEnvoyPoller(inuse.PollerOptions{
		Registry: g.usage, Claims: []inuse.Claims{g.index, g.cache}, Synced: g.index.Synced, AdminSocket: g.o.path(EnvoyAdminSocket), Tick: g.o.IdleTick, Log: g.o.Log,
		MaxOpen: func(namespace string) int { return g.limits.Of(namespace).OpenOfSandbox }, Filled: g.cache.Retract,
		Looking: g.room.Looking,
	})
	g.holds = holds.New(g.usage, g.poller, g.cache, c)
	g.assembleFastPath()
	for _, register := range []func() error{
		func() error { return g.cache.RegisterMetrics(g.reg) },
		func() error { return g.index.RegisterMetrics(g.reg) },
		func() error { return g.live.RegisterMetrics(g.reg) },
		func() error { return g.creates.RegisterMetrics(g.reg) },
		func() error { return g.poller.RegisterMetrics(g.reg) },
		func() error { return limits.RegisterMetrics(g.reg, g.room.Waiting, g.room.OpenRequests) },
	} {
		if err := register(); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// assembleRoom makes the counts of what waits and what is open. The fast path and the poller
// are made after it.
func (g *gateway) assembleRoom() {
	g.limits = limits.NewReader(limits.Options{
		MaxStreams: g.o.MaxStreams, OpenOfSandbox: g.o.MaxOpen, Snapshots: g.o.MaxSnapshots, SnapshotsOfKey: g.o.MaxSnapshotsPerKey,
	})
	admin := envoy.Admin{Socket: g.o.path(EnvoyAdminSocket)}
	g.room = limits.Room{Waiting: limits.NewWaiting(g.limits, g.o.MaxStreams), OpenRequests: limits.NewOpenRequests(limits.OpenOptions{
		Limits: g.limits, Room: envoy.SandboxRequests(g.o.MaxStreams),
		Total: func(ctx context.Context) (limits.Load, error) {
			load, err := admin.LoadOfSandboxes(ctx)
			return limits.Load(load), err
		},
		Refresh: func(ctx context.Context) error { return g.poller.Refresh(ctx) },
	})}
}

// join lists everything anew: a fence that was settled before this gateway wrote
// its lease is known only from lists that are newer. Routes that were put
// meanwhile may come from before; they go once the lists are applied, and so do
// the handlers that took one: they find the lease not held. Without the API keys
// a handler would wait for them with a route in hand, and without the tokens' seed
// it would refuse the right one.
func (g *gateway) join(ctx context.Context) error {
	if err := g.index.Relist(ctx); err != nil {
		return err
	}
	g.keys.Relist()
	if err := g.keys.WaitSynced(ctx); err != nil {
		return err
	}
	if err := g.tokens.Load(ctx); err != nil {
		return err
	}
	if err := g.initKeys.Load(ctx); err != nil {
		return err
	}
	g.cache.DropAll()
	return g.cache.WaitFlights(ctx)
}
