package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/test/kubetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newStore returns a store, and what opens a stored secret as egress does.
func newStore(t *testing.T) (*Store, func(namespace, name string) string) {
	t.Helper()
	private, public, err := seal.NewKey()
	must(t, err)
	key, err := seal.ParsePublicKey(public)
	must(t, err)
	opener, err := seal.NewOpener(private)
	must(t, err)
	c := kubetest.Client(t)
	s := New(c, func(context.Context) (*keys.Public, error) { return &keys.Public{Seal: key}, nil })
	return s, func(namespace, name string) string {
		x := &v1alpha1.SandboxSecret{}
		must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.SecretObject(name)}, x))
		if strings.Contains(fmt.Sprintf("%+v", x), "hunter") {
			t.Errorf("the object has the value: %+v", x)
		}
		value, err := opener.Open(seal.OfSecret(namespace, name), x.Spec.Sealed)
		must(t, err)
		return string(value)
	}
}

// A secret lives under one name, with a version for each value, and another ID when it is made
// again.
func TestLife(t *testing.T) {
	s, open := newStore(t)
	ns, ctx := kubetest.Namespace(t), t.Context()
	const name = "-my_key-" // no name of an object
	byName := restapi.SecretRef{Name: name}
	made, err := s.Create(ctx, ns, name, "hunter1", map[string]string{"a": "b"})
	must(t, err)
	if made.Name != name || made.Version != 1 || made.Metadata["a"] != "b" || made.CreatedAt.IsZero() || len(made.ID) != 32 || open(ns, name) != "hunter1" {
		t.Errorf("made %+v with %q", made, open(ns, name))
	}
	if _, err := s.Create(ctx, ns, name, "hunter2", nil); !errors.Is(err, restapi.ErrSecretExists) || open(ns, name) != "hunter1" {
		t.Errorf("made twice: %v", err)
	}
	byID := restapi.SecretRef{ID: made.ID}
	next, err := s.Update(ctx, ns, byID, "hunter2", nil)
	must(t, err)
	if next.Version != 2 || next.ID != made.ID || next.Metadata["a"] != "b" || next.UpdatedAt.Before(made.UpdatedAt) || open(ns, name) != "hunter2" {
		t.Errorf("updated: %+v with %q", next, open(ns, name))
	}
	next, err = s.Update(ctx, ns, byName, "hunter3", &map[string]string{})
	must(t, err)
	if next.Version != 3 || len(next.Metadata) > 0 {
		t.Errorf("updated: %+v", next)
	}
	for _, of := range []restapi.SecretRef{byName, byID} {
		if got, err := s.Get(ctx, ns, of); err != nil || got.Version != 3 || got.ID != made.ID {
			t.Errorf("%+v: %+v, %v", of, got, err)
		}
		if _, err := s.Get(ctx, kubetest.Namespace(t), of); !errors.Is(err, restapi.ErrNoSecret) {
			t.Errorf("%+v of another namespace: %v", of, err)
		}
	}
	if all, err := s.List(ctx, ns); err != nil || len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("%+v, %v", all, err)
	}
	must(t, s.Delete(ctx, ns, byID))
	_, err = s.Update(ctx, ns, byName, "hunter4", nil)
	for what, err := range map[string]error{"update": err, "delete": s.Delete(ctx, ns, byName)} {
		if !errors.Is(err, restapi.ErrNoSecret) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
	again, err := s.Create(ctx, ns, name, "hunter5", nil)
	must(t, err)
	if again.ID == made.ID || again.Version != 1 {
		t.Errorf("made again: %+v", again)
	}
	if _, err := s.Get(ctx, ns, byID); !errors.Is(err, restapi.ErrNoSecret) {
		t.Errorf("the former ID: %v", err)
	}
}

// Of updates at once each has a version of its own.
func TestUpdatesAtOnce(t *testing.T) {
	s, _ := newStore(t)
	ns := kubetest.Namespace(t)
	_, err := s.Create(t.Context(), ns, "key", "hunter", nil)
	must(t, err)
	var mu sync.Mutex
	versions := map[int64]bool{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			got, err := s.Update(t.Context(), ns, restapi.SecretRef{Name: "key"}, "hunter", nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || versions[got.Version] {
				t.Errorf("version %d, %v", got.Version, err)
			}
			versions[got.Version] = true
		})
	}
	all.Wait()
}

// Without an egress process nothing could use a secret.
func TestWithoutEgress(t *testing.T) {
	s := New(kubetest.Client(t), func(context.Context) (*keys.Public, error) { return nil, keys.ErrNone })
	_, created := s.Create(t.Context(), "default", "key", "hunter", nil)
	_, listed := s.List(t.Context(), "default")
	for what, err := range map[string]error{"create": created, "list": listed, "delete": s.Delete(t.Context(), "default", restapi.SecretRef{Name: "key"})} {
		if !errors.Is(err, restapi.ErrNoEgress) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
