package gateway

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
)

// apiPart is the REST API in this gateway: its server on a unix socket, which
// Envoy sends to what is not addressed to a sandbox, and what it serves from.
type apiPart struct {
	server    *e2b.Server
	listener  net.Listener
	sandboxes *sandboxes
	node      *nodeSize

	stop context.CancelFunc
	done chan struct{} // closed when no request is being answered any more
}

// assembleAPI makes the REST API out of the other parts.
func (g *gateway) assembleAPI(c client.Client, clientset kubernetes.Interface, live *index.Live, a *agent) error {
	node := &nodeSize{api: c, log: g.o.Log}
	s := &sandboxes{
		api: c, pods: clientset, index: g.index, live: live, cache: g.cache, ended: g.ended, wake: g.wake, agent: a, node: node,
		log: g.o.Log, lists: make(chan struct{}, maxLists),
	}
	s.undos.ctx, s.undos.cancel = context.WithCancel(context.Background())
	server, err := e2b.NewServer(e2b.Options{
		Sandboxes: s, Templates: templates{g.index, node}, Keys: apiKeys{g.keys, g.serving}, Tokens: g.tokens,
		Domain: g.o.Domain, Registerer: g.reg, Log: g.o.Log,
	})
	if err != nil {
		return err
	}
	l, err := controlplane.ListenUnix(g.o.path(APISocket))
	if err != nil {
		return err
	}
	g.api = &apiPart{server: server, listener: l, sandboxes: s, node: node, done: make(chan struct{})}
	return nil
}

// start serves until shutdown, and other work until ctx ends.
func (p *apiPart) start(ctx context.Context, parts *errgroup.Group) {
	serving, stop := context.WithCancel(ctx)
	p.stop = stop
	parts.Go(func() error {
		defer close(p.done)
		return p.server.Serve(serving, p.listener)
	})
	parts.Go(func() error { return p.node.start(ctx) })
}

// finish waits until all is answered and every failed create is undone, until ctx
// ends. It is called after stop, and after activations were ended.
func (p *apiPart) finish(ctx context.Context) error {
	undone := make(chan struct{})
	go func() {
		defer close(undone)
		<-p.done
		p.sandboxes.undos.running.Wait()
	}()
	defer func() { <-undone }()
	defer p.sandboxes.undos.cancel()
	select {
	case <-undone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apiKeys is the credentials' verifier in e2b's words. While the gateway does not
// serve it knows nobody, so that nothing is said from half a view.
type apiKeys struct {
	*credentials.Verifier
	serving func() bool
}

// Verify implements e2b.Keys.
func (k apiKeys) Verify(ctx context.Context, key string) (e2b.Identity, error) {
	if !k.serving() {
		return e2b.Identity{}, e2b.ErrKeysNotReady
	}
	id, err := k.Verifier.Verify(ctx, key)
	if errors.Is(err, credentials.ErrBadKey) {
		err = e2b.ErrKeyInvalid
	}
	return e2b.Identity{Team: id.Team, Namespace: id.Namespace, KeyID: id.KeyID}, err
}

// assembleReady makes what speaks to sandboxd, before activation needs it.
func (g *gateway) assembleReady(c client.Client) (a *agent, ready activation.Ready, err error) {
	a = newAgent(g.tokens, func() bool { return g.member.Held() })
	if g.ended, err = newEndings(); err != nil {
		return nil, nil, err
	}
	if g.readiness, err = newReadiness(a, c, g.o.CacheSize, g.o.Log); err != nil {
		return nil, nil, err
	}
	return a, g.readiness.ready, nil
}
