package gateway

import (
	"context"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/egress"
	egresskeys "github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/gateway/builds"
	"github.com/sandlane/sandlane/gateway/links"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/gateway/secrets"
)

// apiPart is the REST API in this gateway: its server on a unix socket, to which Envoy
// sends requests that are not addressed to a sandbox, and what it serves from.
type apiPart struct {
	server    *restapi.Server
	listener  net.Listener
	sandboxes *backend.Backend
	node      *backend.NodeSize
	kept      *snapshotStore
	builds    *builds.Builds // nil without a template registry

	stop context.CancelFunc
	done chan struct{} // closed when no request is being answered any more
}

// assembleAPI makes the REST API out of the other parts.
func (g *gateway) assembleAPI(c client.Client, clientset kubernetes.Interface, a *sandboxdclient.Agent) error {
	closed, err := egress.ClosedRanges(g.o.ClosedRanges)
	if err != nil {
		return err
	}
	node := backend.NewNodeSize(c, g.o.Log)
	kept, err := g.openSnapshots(c, g.live, a)
	if err != nil {
		return err
	}
	publicKeys := func(ctx context.Context) (*egresskeys.Public, error) {
		return egresskeys.ReadPublic(ctx, c, g.o.SystemNamespace)
	}
	s := backend.New(backend.Options{
		Restorer: kept.restorer(),
		API:      c, Pods: clientset, Index: g.index, Live: g.live, Cache: g.cache, Endings: g.own, Activation: g.activator, Wait: g.room.waitKeyed,
		Agent: a, Pauser: g.own.pauser, Restores: kept != nil, ReserveForPause: kept.reserveForPause(), Rehibernate: g.rehibernate, Node: node, Closed: closed, Log: g.o.Log,
		SystemNamespace: g.o.SystemNamespace,
		PublicKeys:      publicKeys,
	})
	if kept != nil {
		g.paused = files.NewHibernator(kept.Snapshots, a, s.KeepEgress)
		g.own.pauser.SetSaver(g.paused)
	}
	templates := backend.NewTemplates(g.index, node)
	built, err := g.openBuilds(c, s, templates, a, closed)
	if err != nil {
		return err
	}
	o := restapi.Options{
		Sandboxes: s, Templates: templates, Keys: apiKeys{g.keys, g.serving}, Tokens: g.tokens,
		Snapshots: kept.backend(), Secrets: secrets.New(c, publicKeys),
		Domain: g.o.Domain, Registerer: g.reg, Log: g.o.Log,
		Front: func(api http.Handler) http.Handler {
			return &links.Handler{Tokens: g.tokens, Next: api, Log: g.o.Log}
		},
	}
	if built != nil {
		o.Builds = built
	}
	server, err := restapi.NewServer(o)
	if err != nil {
		return err
	}
	l, err := controlplane.ListenUnix(g.o.path(APISocket))
	if err != nil {
		return err
	}
	g.api = &apiPart{server: server, listener: l, sandboxes: s, node: node, kept: kept, builds: built, done: make(chan struct{})}
	return nil
}

// start serves the REST API until stop is called, and reads the size of nodes until ctx ends.
func (p *apiPart) start(ctx context.Context, parts *errgroup.Group) {
	serving, stop := context.WithCancel(ctx)
	p.stop = stop
	parts.Go(func() error {
		defer close(p.done)
		defer p.kept.close()
		defer p.stopBuilds()
		return p.server.Serve(serving, p.listener)
	})
	parts.Go(func() error { return p.node.Start(ctx) })
}

// stopBuilds ends the builds of this gateway.
func (p *apiPart) stopBuilds() {
	if p.builds != nil {
		p.builds.Stop()
	}
}

// finish returns nil once all requests are answered and every failed create is undone.
// When ctx ends, it gives up the undoing that is left and returns ctx's error. Call it
// after stop, and after activations were ended.
func (p *apiPart) finish(ctx context.Context) error {
	undone := make(chan struct{})
	go func() {
		defer close(undone)
		<-p.done
		p.sandboxes.WaitUndone()
	}()
	defer func() { <-undone }()
	defer p.sandboxes.StopUndoing()
	select {
	case <-undone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
