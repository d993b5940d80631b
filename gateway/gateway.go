package gateway

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/controlplane/lastcreate"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/holds"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/gateway/limits"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routecache"
)

// Time limits of the stop, one for each step that could hang.
const (
	settleTimeout = 10 * time.Second
	leaveTimeout  = 8 * time.Second // includes handOverTimeout
	// handOverTimeout is three polls of a controller with the default --idle-check-interval.
	handOverTimeout = 3 * time.Second
)

// gateway is one running gateway process. All its parts are made before any is
// started.
type gateway struct {
	o         Options
	reg       *prometheus.Registry
	cache     *routecache.Cache
	fast      *fastPath
	usage     *inuse.Registry
	limits    limits.Reader
	room      limits.Room
	poller    *inuse.EnvoyPoller
	index     *index.Index
	live      *index.Live
	holds     *holds.Holds
	keys      *credentials.Verifier
	tokens    *credentials.Tokens
	initKeys  *credentials.InitSigner
	set       *schedule.Set
	activator *activation.Activator
	member    *controlplane.Membership
	control   *controlplane.Server
	// controlTLS is nil on a unix socket without TLS.
	controlTLS *controlplane.MutualTLS
	extproc    *extproc.Server
	creates    *lastcreate.Tracker
	readiness  *sandboxdclient.Readiness
	own        *ownView
	paused     *files.Hibernator // nil: no sandbox hibernates here
	api        *apiPart
	metrics    net.Listener // nil serves no metrics
	drain      *drain
}

// Run runs a gateway until ctx ends, then stops it in order and returns nil, or
// the first error of a part.
func Run(ctx context.Context, o Options) error {
	o.Complete()
	if err := o.Validate(); err != nil {
		return fmt.Errorf("gateway options: %w", err)
	}
	if err := os.MkdirAll(o.RunDir, 0o700); err != nil {
		return fmt.Errorf("make the run directory: %w", err)
	}
	g, err := assemble(o)
	if err != nil {
		return err
	}
	return g.run(ctx)
}

// run starts every part, and stops them in the order that drain's comment tells. The start:
//
//	control-plane server listens → table of the fast path settled → lease written → consistent lists of pods,
//	sandboxes and pools, keys and tokens → lease held → ExtProc is ready
//
// The sockets listen from the start: until all is well ExtProc and the REST API
// answer 503, and ExtProc's health says NOT_SERVING. The API server may be away:
// each step is tried until it succeeds, and the process stays.
//
// An Envoy that a former process began to drain is ended at the start; what
// runs it starts it again, best after this process is ready.
func (g *gateway) run(ctx context.Context) error {
	// The data plane outlives ctx: it stops step by step.
	front, stopFront := context.WithCancel(context.WithoutCancel(ctx)) // ExtProc
	back, stopBack := context.WithCancel(context.WithoutCancel(ctx))   // the parts that ExtProc uses
	defer stopFront()
	defer stopBack()
	parts, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	frontDone := make(chan struct{})
	if g.controlTLS != nil {
		parts.Go(func() error { return g.controlTLS.Start(back) })
	}
	parts.Go(func() error { return g.control.Start(back) })
	parts.Go(func() error { return g.index.Start(back) })
	parts.Go(func() error { return g.live.Start(back) })
	parts.Go(func() error { return g.keys.Start(back) })
	parts.Go(func() error { return g.poller.Start(back) })
	parts.Go(func() error { return g.room.OpenRequests.Start(back) })
	parts.Go(func() error { return g.creates.Start(back) })
	parts.Go(func() error { return g.set.FollowCordons(back, g.o.Log) })
	parts.Go(func() error {
		if err := g.fast.settle(back, g.drain.admin); err != nil {
			return err
		}
		parts.Go(func() error { return g.fast.start(back) })
		return g.member.Start(back)
	})
	parts.Go(func() error {
		defer close(frontDone)
		return g.extproc.Start(front)
	})
	g.api.start(back, parts)
	if g.metrics != nil {
		parts.Go(func() error { return g.serveHTTP(back) })
	}
	parts.Go(func() error { return g.drain.endLeftover(back) })

	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	g.drain.begun.Store(true)
	envoyGone := g.drain.envoy(failed)
	g.extproc.Drain()
	g.api.stop()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		// Both at once: an activation waits for its scheduler's answer.
		var both sync.WaitGroup
		both.Go(g.activator.Shutdown)
		both.Go(g.set.Shutdown)
		both.Wait()
	}()
	select {
	case <-settled:
	case <-time.After(settleTimeout):
		g.o.Log.Warn("claims did not settle in time; the next gateway that meets them completes them")
	}
	stopFront()
	<-frontDone
	finish, done := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	if err := g.api.finish(finish); err != nil {
		g.o.Log.Warn("sandboxes whose create failed are left to their end time", "error", err)
	}
	done()
	g.leave(context.WithoutCancel(ctx), envoyGone)
	stopBack()
	return parts.Wait()
}

// leave gives the lease up. It does that only if no Envoy is there, since a lease that was left
// says that nothing is open here. An Envoy that lives may have streams, and then
// their sandboxes are in use: the lease counts its time out, so that controllers ask this
// gateway's next process, or wait. Requests are refused before the last look at Envoy, so
// that one which is started after it has nothing open.
func (g *gateway) leave(ctx context.Context, envoyGone bool) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := g.member.Abandon(ctx); err != nil {
		g.o.Log.Warn("dropping routes failed; the lease is waited for until its end", "error", err)
		return
	}
	told := false
	if envoyGone && g.drain.openNoted {
		telling, stop := context.WithTimeout(ctx, handOverTimeout)
		defer stop()
		err := g.control.HandOver(telling)
		if told = err == nil; !told {
			g.o.Log.Info("no controller has asked for the last uses: idle time counts anew", "error", err)
		}
	}
	if !envoyGone || !g.drain.gone(ctx) {
		g.o.Log.Warn("Envoy may run, so the lease is left to the next process, or to its end: what is open is in use")
		return
	}
	if err := g.member.Leave(ctx, told); err != nil {
		g.o.Log.Warn("the lease could not be deleted; it is waited for until its end", "error", err)
	}
}

// serving reports whether the gateway can answer. It may be draining.
func (g *gateway) serving() bool { return g.member.Held() && g.index.Synced() && g.keys.Synced() }

// ready reports whether the gateway serves and is to go on serving.
func (g *gateway) ready() bool { return !g.drain.begun.Load() && g.serving() }
