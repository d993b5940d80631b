package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

func (w *world) request(id, pool string) routing.Request {
	return routing.Request{ID: id, Namespace: w.ns, Pool: pool}
}

// A first request initialises sandboxd, with the token and nothing else, before
// there is a route; another gateway does it again before it has one, once.
func TestFirstRequestInitialises(t *testing.T) {
	w := newWorld(t)
	d := w.ready()
	one, two := w.gateway(), w.gateway()
	id := kubetest.Name("first")
	r := w.request(id, "base")
	r.New = true
	if err := one.activator.Activate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if calls := d.calls(); len(calls) != 1 || calls[0].Token != w.tokens.Envd(id, w.sandbox(id).UID) || len(calls[0].Env) != 0 {
		t.Fatalf("sandboxd was told %+v", calls)
	}
	if one.cache.Get(id) == nil {
		t.Error("there is no route")
	}
	w.follows(two, id, d, 2)
	if a := one.own.Lookup(id); a.State != routing.Running {
		t.Errorf("the gateway that initialised it finds it %v", a.State)
	}
}

// follows has a gateway that did not make the sandbox take it for starting until
// it has initialised it, which it then has times times in all.
func (w *world) follows(g *gateway, id string, d *sandboxd, times int) {
	w.t.Helper()
	kubetest.Eventually(w.t, "the index to show the pod", func() error {
		if a := g.index.Resolve(id); a.State != routing.Running {
			return activation.ErrNotReady
		}
		return nil
	})
	x := g.own
	if a := x.Lookup(id); a.State != routing.Starting || a.Route != nil {
		w.t.Errorf("before it was initialised it is %+v", a)
	}
	if a, err := x.Resolve(w.t.Context(), id, "a"); err != nil || a.State != routing.Starting || a.Route != nil {
		w.t.Errorf("before it was initialised it is, live, %+v, %v", a, err)
	}
	for range 2 {
		if err := g.activator.Activate(w.t.Context(), w.request(id, "base")); err != nil {
			w.t.Fatal(err)
		}
	}
	if calls := d.calls(); len(calls) != times {
		w.t.Errorf("it was initialised %d times, want %d", len(calls), times)
	}
	if a := x.Lookup(id); a.State != routing.Running || a.Route == nil {
		w.t.Errorf("after it was initialised it is %+v", a)
	}
	if g.cache.Get(id) == nil {
		w.t.Error("there is no route")
	}
}

// claimed makes a sandbox whose owner died after its claim had landed.
func (w *world) claimed(id, addr string) *corev1.Pod {
	w.t.Helper()
	pod := w.pod("base", addr, func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
		p.Labels[v1alpha1.LabelSandboxID] = id
		p.Annotations[v1alpha1.AnnotationClaim] = "claim"
	})
	s := &v1alpha1.Sandbox{}
	s.Name = id
	s.Spec.Namespace, s.Spec.Pool, s.Spec.FirstRequest = w.ns, "base", true
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "claim", PodName: pod.Name, PodUID: string(pod.UID)}
	if err := w.c.Create(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// A gateway that dies between claim and initialisation leaves a deaf sandboxd;
// the next request initialises it.
func TestOwnerDiesBeforeInit(t *testing.T) {
	w := newWorld(t)
	d := w.sandboxd()
	id := kubetest.Name("orphan")
	w.claimed(id, d.addr)
	w.follows(w.gateway(), id, d, 1)
}

// A sandbox of the REST API is left to its Create, which alone has its environment.
func TestAPISandboxIsNotInitialisedByOthers(t *testing.T) {
	w := newWorld(t)
	d := w.sandboxd()
	id := newID()
	w.claimed(id, d.addr)
	g := w.gateway()
	if a := g.own.Lookup(id); a.State != routing.Running {
		t.Errorf("it is %+v", a)
	}
	if err := g.activator.Activate(t.Context(), w.request(id, "base")); err != nil {
		t.Fatal(err)
	}
	if calls := d.calls(); len(calls) != 0 {
		t.Errorf("sandboxd was told %+v", calls)
	}
}

// A first-request sandbox whose pod refuses is ended, and its record says why.
func TestFirstRequestWithBadSandboxd(t *testing.T) {
	w := newWorld(t)
	d := w.ready()
	d.status.Store(http.StatusUnauthorized)
	g := w.gateway()
	id := kubetest.Name("refused")
	r := w.request(id, "base")
	r.New = true
	err := g.activator.Activate(t.Context(), r)
	wantError(t, "Activate", err, routing.ErrUnusable)
	if e := w.sandbox(id).Spec.End; e == nil || e.Reason != v1alpha1.EndFailed || e.Message == "" {
		t.Errorf("the end is %+v", e)
	}
	if r := g.cache.Get(id); r != nil {
		t.Errorf("it is routed to: %+v", r)
	}
}

// errorCount counts the records about sandboxes that refuse.
type errorCount struct {
	slog.Handler
	n atomic.Int32
}

func (*errorCount) Enabled(context.Context, slog.Level) bool { return true }

func (c *errorCount) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "refuses this gateway") {
		c.n.Add(1)
	}
	return nil
}

// A sandbox that has run is not ended because its pod refuses a gateway now: the seed
// of tokens may have been lost, and other gateways serve it still. Each request tries
// by what is known and once more by what it reads, and is told to come again.
func TestRunningSandboxThatRefusesIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	for _, status := range []int32{http.StatusUnauthorized, http.StatusConflict, http.StatusNotFound} {
		d := w.sandboxd()
		d.status.Store(status)
		id := kubetest.Name("ran")
		w.claimed(id, d.addr)
		s, at := w.sandbox(id), metav1.Now()
		s.Status.StartedAt = &at
		if err := w.c.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		refusals := &errorCount{Handler: slog.DiscardHandler}
		w.log = slog.New(refusals)
		g := w.gateway()
		kubetest.Eventually(t, "the index to show the pod", func() error {
			if a := g.index.Resolve(id); a.State != routing.Running {
				return activation.ErrNotReady
			}
			return nil
		})
		for n := range int32(2) {
			err := g.activator.Activate(t.Context(), w.request(id, "base"))
			wantError(t, "Activate", err, activation.ErrNotReady)
			if d.refused.Load() != 2*(n+1) {
				t.Errorf("%d: sandboxd was asked %d times by %d requests", status, d.refused.Load(), n+1)
			}
		}
		if e := w.sandbox(id).Spec.End; e != nil {
			t.Fatalf("%d: it was ended: %+v", status, e)
		}
		if r := g.cache.Get(id); r != nil || refusals.n.Load() != 1 {
			t.Errorf("%d: route %+v, logged %d times", status, r, refusals.n.Load())
		}
		d.status.Store(0)
		w.follows(g, id, d, 1)
	}
}

// A claim from a pool without sandboxd calls no agent.
func TestPoolWithoutSandboxd(t *testing.T) {
	w := newWorld(t)
	w.pool("plain", 8000, nil)
	d := w.sandboxd()
	w.pod("plain", d.addr, nil)
	g := w.gateway()
	id := kubetest.Name("plain")
	r := w.request(id, "plain")
	r.New = true
	if err := g.activator.Activate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if calls := d.calls(); len(calls) != 0 || g.cache.Get(id) == nil {
		t.Errorf("sandboxd was told %+v; the route is %+v", calls, g.cache.Get(id))
	}
}
