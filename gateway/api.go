package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/credentials/logins"
	"github.com/sandlane/sandlane/egress"
	egresskeys "github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/gateway/builds"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/limits"
	"github.com/sandlane/sandlane/gateway/links"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/gateway/secrets"
	"github.com/sandlane/sandlane/kubeclient"
)

// apiPart is the REST API in this gateway: its server on a unix socket, to which Envoy
// sends requests that are not addressed to a sandbox, and what it serves from.
type apiPart struct {
	server    *restapi.Server
	listener  net.Listener
	sandboxes *backend.Backend
	node      *backend.NodeSize
	snapshots restapi.Snapshots  // nil without a folder of checkpoints
	folder    *checkpoint.Folder // theirs
	builds    *builds.Builds     // nil without a template registry

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
	folder, snapshots, err := g.openSnapshots(c, a)
	if err != nil {
		return err
	}
	publicKeys := func(ctx context.Context) (*egresskeys.Public, error) {
		return egresskeys.ReadPublic(ctx, c, g.o.SystemNamespace)
	}
	s := backend.New(backend.Options{
		API: c, Pods: clientset, Index: g.index, Live: g.live, Cache: g.cache, Endings: g.own, Activation: g.activator, Wait: g.room.WaitKeyed,
		Agent: a, Pauser: g.own.pauser, Snapshots: snapshots, Rehibernate: g.rehibernate, Node: node, Closed: closed, Log: g.o.Log,
		SystemNamespace: g.o.SystemNamespace, PublicKeys: publicKeys,
	})
	if snapshots != nil {
		g.paused = files.NewHibernator(snapshots, a, s.KeepEgress)
		g.own.pauser.SetSaver(g.paused)
	}
	templates := backend.NewTemplates(g.index, node)
	built, err := g.openBuilds(c, s, templates, a, closed)
	if err != nil {
		return err
	}
	o := restapi.Options{
		Sandboxes: s, Templates: templates, Keys: g.keys, Serving: g.serving, Tokens: g.tokens, Secrets: secrets.New(c, publicKeys),
		Domain: g.o.Domain, Registerer: g.reg, Log: g.o.Log,
		Front: func(api http.Handler) http.Handler {
			return &links.Handler{Tokens: g.tokens, Next: api, Log: g.o.Log}
		},
	}
	if snapshots != nil {
		o.Snapshots = snapshots
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
	g.api = &apiPart{server: server, listener: l, sandboxes: s, node: node, snapshots: o.Snapshots, folder: folder, builds: built, done: make(chan struct{})}
	return nil
}

// openSnapshots opens the folder where this gateway keeps snapshots; nil without one.
func (g *gateway) openSnapshots(c client.Client, a *sandboxdclient.Agent) (*checkpoint.Folder, *files.Snapshots, error) {
	metrics := files.NewMetrics(g.reg) // also without a folder: alerts and dashboards name them
	if g.o.CheckpointDir == "" {
		return nil, nil, nil
	}
	folder, err := checkpoint.OpenFolder(g.o.CheckpointDir, g.o.MaxCheckpointBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint folder: %w", err)
	}
	return folder, files.New(files.Options{
		API: c, Live: g.live, Pods: sandboxdclient.NewPods(c, g.cache), Agent: a, Store: folder, Exceeded: kubeclient.QuotaExceeded,
		Place: limits.NewArchives(g.limits).Wait,
		Limits: func(namespace string) files.Limits {
			l := g.limits.Of(namespace)
			return files.Limits{
				Snapshots: l.Snapshots, SnapshotsOfKey: l.SnapshotsOfKey,
				SnapshotBytes: l.SnapshotBytes, SnapshotBytesOfKey: l.SnapshotBytesOfKey, PauseBytes: l.PauseBytes, PauseBytesOfKey: l.PauseBytesOfKey,
			}
		},
		Metrics: metrics, Log: g.o.Log,
	}), nil
}

// openBuilds makes what builds templates; nil without a template registry.
func (g *gateway) openBuilds(c client.Client, s restapi.Sandboxes, t restapi.Templates, a *sandboxdclient.Agent, closed egress.Closed) (*builds.Builds, error) {
	if g.o.TemplateRegistry == "" {
		return nil, nil
	}
	registry, err := store.New(store.Options{
		Registry: g.o.TemplateRegistry, Keychain: logins.Keychain(g.o.TemplateCredentials), Bases: g.o.TemplateBases, Closed: closed,
	})
	if err != nil {
		return nil, err
	}
	return builds.New(builds.Options{
		API: c, Store: registry, Sandboxes: s, Agent: a, Gateway: g.o.Name, Log: g.o.Log, Sign: g.tokens.Upload,
		Pods: builds.BuilderPods{Live: g.live, Pods: sandboxdclient.NewPods(c, g.cache)},
		HasPool: func(namespace, name string) bool {
			pool, ok := g.index.Pool(namespace, name)
			return ok && !pool.Deleting
		},
		Resolve: func(namespace, name string) string {
			template, _ := t.Template(namespace, name)
			return template.Pool
		},
	}), nil
}

// start serves the REST API until stop is called, and reads the size of nodes until ctx ends.
func (p *apiPart) start(ctx context.Context, parts *errgroup.Group) {
	serving, stop := context.WithCancel(ctx)
	p.stop = stop
	parts.Go(func() error {
		defer close(p.done)
		defer p.close() // when no request is answered any more
		return p.server.Serve(serving, p.listener)
	})
	parts.Go(func() error { return p.node.Start(ctx) })
}

// close ends the builds of this gateway, and closes the folder of snapshots.
func (p *apiPart) close() {
	if p.builds != nil {
		p.builds.Stop()
	}
	if p.folder != nil {
		_ = p.folder.Close()
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
