package gateway

import (
	"errors"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// The REST API shows a sandbox that was made by name as private where its pool's
// sandboxes are reached by token, which it then gives out, and not as open to the
// public where they are reached by key.
func TestNamedSandboxIsShownByReach(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	for _, c := range []struct {
		reach          v1alpha1.FirstRequestReach
		private, keyed bool
	}{{v1alpha1.ReachToken, true, false}, {v1alpha1.ReachKey, false, true}, {v1alpha1.ReachPublic, false, false}} {
		pool := kubetest.Name("pool")
		w.pool(pool, v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
			p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey, Reach: c.reach}
		})
		kubetest.Eventually(t, "the index to show the pool", func() error {
			if _, ok := g.index.Pool(w.ns, pool); !ok {
				return errors.New("not there")
			}
			return nil
		})
		s := &v1alpha1.Sandbox{}
		s.Name = kubetest.Name("named")
		s.Spec.Namespace, s.Spec.Pool, s.Spec.FirstRequest = w.ns, pool, true
		if err := w.c.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		got, err := g.api.sandboxes.Get(t.Context(), w.ns, s.Name)
		if err != nil || got.Private != c.private || got.Keyed != c.keyed {
			t.Errorf("%s: private %v, keyed %v, %v", c.reach, got.Private, got.Keyed, err)
		}
	}
}
