package gateway

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/routing"
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
		if w.keys, _, err = credentials.RotateInitKeys(t.Context(), w.c, w.ns); err != nil {
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
