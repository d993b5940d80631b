package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A rotation of the keys ends no warm stock, and no gateway has to be restarted for
// it: pods with the key of before and pods with the key of after are initialised, by a
// gateway that has seen none of two rotations too.
func TestInitKeysAreRotated(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	made := func(what string) {
		t.Helper()
		if _, err := g.create(t, w.new(newID())); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	first := w.ready()
	for range 2 {
		var err error
		if w.keys, err = credentials.RotateInitKeys(t.Context(), w.c, w.ns); err != nil {
			t.Fatal(err)
		}
	}
	made("a pod from before the rotations")
	second := w.ready()
	made("a pod from after them")
	if len(first.calls()) != 1 || len(second.calls()) != 1 {
		t.Errorf("they were initialised %d and %d times", len(first.calls()), len(second.calls()))
	}
}

// A pod without a key, or with one that this cluster never had, is of no use.
func TestPodWithoutInitKey(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	for _, id := range []string{"", "0123456789abcdef"} {
		d := w.sandboxd()
		w.pod("base", d.addr, func(p *corev1.Pod) { p.Labels[v1alpha1.LabelInitKey] = id })
		sandbox := newID()
		_, err := g.create(t, w.new(sandbox))
		wantError(t, "Create", err, routing.ErrUnusable)
		w.ended(g, sandbox)
		if calls := d.calls(); len(calls) != 0 {
			t.Errorf("key %q: sandboxd was told %+v", id, calls)
		}
	}
}

// While the API server is away a key that was known goes on working; of one that is
// not it cannot be said that it is wrong.
func TestInitKeysWhileTheAPIServerIsAway(t *testing.T) {
	ns, away := kubetest.Namespace(t), errors.New("away")
	gone := false
	c := interceptor.NewClient(kubetest.Client(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if gone {
				return away
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	k := &initKeys{client: c, namespace: ns}
	if err := k.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	current := k.loaded.Load().Current().ID
	gone = true
	if _, ok, err := k.Sign(t.Context(), current, nil); !ok || err != nil {
		t.Errorf("the current key: %v, %v", ok, err)
	}
	if _, ok, err := k.Sign(t.Context(), "unknown", nil); ok || !errors.Is(err, away) {
		t.Errorf("an unknown key: %v, %v", ok, err)
	}
	gone = false
	if _, ok, err := k.Sign(t.Context(), "unknown", nil); ok || err != nil {
		t.Errorf("an unknown key when the API server is back: %v, %v", ok, err)
	}
	gone = true // what was just read is not read again
	k.read = k.read.Add(time.Hour)
	if _, ok, err := k.Sign(t.Context(), "unknown", nil); ok || err != nil {
		t.Errorf("an unknown key a moment later: %v, %v", ok, err)
	}
}
