package gateway

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// ended checks that a create left nothing but an ended sandbox, and no route.
func (w *world) ended(g *gateway, id string) {
	w.t.Helper()
	s := w.sandbox(id)
	switch {
	case s == nil:
		w.t.Error("there is no sandbox, so a late create could still make it")
	case s.Spec.End == nil || s.Spec.End.Reason != v1alpha1.EndCanceled:
		w.t.Errorf("the sandbox is %+v", s.Spec)
	}
	if r := g.cache.Get(id); r != nil {
		w.t.Errorf("it is routed to: %+v", r)
	}
}

// A sandbox whose sandboxd cannot be initialised is ended, whatever the reason.
func TestCreateWithBadSandboxd(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	for name, spoil := range map[string]func(*sandboxd){
		"signature refused":     func(d *sandboxd) { d.status.Store(http.StatusUnauthorized) },
		"initialised otherwise": func(d *sandboxd) { d.inits = []initBody{{Token: "x"}} },
		"no such path":          func(d *sandboxd) { d.status.Store(http.StatusNotFound) },
	} {
		t.Run(name, func(t *testing.T) {
			d := w.sandboxd()
			spoil(d)
			w.pod("base", d.addr, nil)
			id := newID()
			_, err := g.create(t, w.new(id))
			wantError(t, "Create", err, routing.ErrUnusable)
			w.ended(g, id)
		})
	}
	t.Run("broken for a moment", func(t *testing.T) {
		d := w.sandboxd()
		d.hang.Store(true)
		w.pod("base", d.addr, nil)
		go func() { <-d.hanging; d.hang.Store(false) }() // the first call times out
		_, err := g.create(t, w.new(newID()))
		wantError(t, "Create", err, nil)
	})
	t.Run("nobody listens", func(t *testing.T) {
		w.pod("base", "127.0.0.99", nil) // nothing of ours is there
		id := newID()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := g.api.sandboxes.Create(ctx, w.new(id))
		wantError(t, "Create", err, context.DeadlineExceeded)
		w.ended(g, id)
	})
}

// A caller that leaves while sandboxd is being initialised leaves nothing behind.
func TestCreateIsCancelled(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	d := w.sandboxd()
	d.hang.Store(true)
	w.pod("base", d.addr, nil)
	id := newID()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { <-d.hanging; cancel() }()
	_, err := g.api.sandboxes.Create(ctx, w.new(id))
	wantError(t, "Create", err, context.Canceled)
	w.ended(g, id)
}

// A create that gets no pod makes nothing, and takes none that comes later.
func TestCreateWithoutAPod(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	late, left := newID(), newID()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := g.api.sandboxes.Create(ctx, w.new(late))
	wantError(t, "at the deadline", err, restapi.ErrNoCapacity)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = g.api.sandboxes.Create(ctx, w.new(left))
	wantError(t, "cancelled", err, context.Canceled)
	d := w.ready()
	id := newID()
	if _, err := g.create(t, w.new(id)); err != nil {
		t.Fatal(err)
	}
	if calls := d.calls(); len(calls) != 1 || calls[0].Token != w.tokens.Envd(id, w.sandbox(id).UID) {
		t.Errorf("sandboxd was told %+v", calls)
	}
	for _, id := range []string{late, left} {
		if s := w.sandbox(id); s != nil {
			t.Errorf("sandbox %s was made: %+v", id, s.Spec)
		}
	}
}

// What cannot work is refused before anything is made.
func TestCreateInvalid(t *testing.T) {
	w := newWorld(t)
	w.pool("plain", 8000, nil)
	w.pod("plain", "127.0.0.98", nil)
	g := w.gateway()
	for _, pool := range []string{"plain", "none"} {
		n := w.new(newID())
		n.Pool = pool
		_, err := g.create(t, n)
		wantError(t, "Create in "+pool, err, restapi.ErrInvalid)
		if w.sandbox(n.ID) != nil {
			t.Errorf("%s: a sandbox was made", pool)
		}
	}
	n := w.new(newID())
	n.Namespace = kubetest.Namespace(t)
	_, err := g.create(t, n)
	wantError(t, "Create in a namespace without the pool", err, restapi.ErrInvalid)
}

// A write that does not get through in time is said to be of unknown outcome.
func TestOutcomeUnknown(t *testing.T) {
	w := newWorld(t)
	d := w.sandboxd()
	d.hang.Store(true)
	w.pod("base", d.addr, nil)
	g := w.gateway()
	g.api.sandboxes.StopUndoing() // as a gateway that is stopping for good
	id := newID()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-d.hanging; cancel() }()
	_, err := g.api.sandboxes.Create(ctx, w.new(id))
	wantError(t, "Create", err, restapi.ErrOutcomeUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v hides its cause", err)
	}
	if s := w.sandbox(id); s == nil || s.Spec.End != nil || s.Spec.Timeouts.EndAt == nil {
		t.Errorf("the sandbox is %+v", s)
	}
}
