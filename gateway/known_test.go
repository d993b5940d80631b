package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// network connects a gateway to the API server until it is cut.
type network struct {
	mu   sync.Mutex
	away bool
	open []net.Conn
}

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return nil, errors.New("the API server is away")
	}
	c, err := new(net.Dialer).DialContext(ctx, kind, address)
	if err == nil {
		n.open = append(n.open, c)
	}
	return c, err
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away = true
	for _, c := range n.open {
		_ = c.Close()
	}
}

// A gateway initialises and routes to a sandbox that it has not met while the API
// server is away: its watches have shown it all that takes.
func TestSandboxIsMetWithoutTheAPIServer(t *testing.T) {
	w := newWorld(t)
	d := w.ready()
	one := w.gateway()
	n := &network{}
	cfg := rest.CopyConfig(kubetest.Config(t))
	cfg.Dial = n.dial
	two := w.gatewayWith(cfg)
	t.Cleanup(func() { // or it could not delete its lease
		n.mu.Lock()
		defer n.mu.Unlock()
		n.away = false
	})
	id := kubetest.Name("unmet")
	r := w.request(id, "base")
	r.New = true
	if err := one.activator.Activate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the index to show the pod", func() error {
		if a := two.index.Resolve(id); a.State != routing.Running {
			return activation.ErrNotReady
		}
		return nil
	})
	n.cut()
	x := two.own
	if a := x.Lookup(id); a.State != routing.Starting {
		t.Fatalf("before it was met it is %v", a.State)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := two.activator.Activate(ctx, w.request(id, "base")); err != nil {
		t.Fatal(err)
	}
	token := w.tokens.Envd(id, w.sandbox(id).UID)
	if calls := d.calls(); len(calls) != 2 || calls[0].Token != token || calls[1].Token != token ||
		calls[1].Sandbox != calls[0].Sandbox || calls[1].Template != calls[0].Template {
		t.Errorf("sandboxd was told %+v", calls)
	}
	if a := x.Lookup(id); a.State != routing.Running || two.cache.Get(id) == nil {
		t.Errorf("it is %v, route %+v", a.State, two.cache.Get(id))
	}
	other := w.request(id, "other")
	if err := two.activator.Activate(ctx, other); err == nil {
		t.Error("a request that expects another pool is served by what is known")
	}
}
