package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// A namespace goes away with a sandbox that is frozen in it and one that hibernates: neither
// keeps it, both end, what was kept of the second is deleted with its data, and its key is
// none of a new namespace of its name.
func TestNamespaceDeletedWithPausedSandboxes(t *testing.T) {
	t.Parallel()
	ns := shared.PoolNamespace(t, "paused-")
	t.Cleanup(func() { _ = shared.Client.Delete(context.Background(), ns) })
	shared.Pool(t, ns.Name, "resting", 2, stack.WithFreezer(), func(p *v1alpha1.SandboxPool) {
		p.Spec.Pause = &v1alpha1.PoolPause{Modes: []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}}
	})
	key, err := shared.Key(t.Context(), ns.Name)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, body string, want int) stack.Answer {
		t.Helper()
		var a stack.Answer
		shared.Eventually(t, time.Minute, fmt.Sprintf("%s to be answered with %d", path, want), func() (bool, string) {
			var err error
			a, err = shared.Up.Gateways[0].REST(t.Context(), nil, key, http.MethodPost, path, body)
			return err == nil && a.Status == want, fmt.Sprint(a, err) // the gateway hears of the key a moment later
		})
		return a
	}
	ids := map[string]string{} // by what the pause asks for
	for _, pause := range []string{`{}`, `{"memory":false}`} {
		var made struct{ SandboxID string }
		if err := json.Unmarshal(ask("/v2/sandboxes", `{"templateID":"resting","timeout":600}`, http.StatusCreated).Body, &made); err != nil {
			t.Fatal(err)
		}
		ask("/sandboxes/"+made.SandboxID+"/pause", pause, http.StatusNoContent)
		ids[pause] = made.SandboxID
	}
	hibernates, _ := shared.Sandbox(t, ids[`{"memory":false}`])
	if frozen, _ := shared.Sandbox(t, ids[`{}`]); !frozen.Spec.Paused || frozen.Spec.Binding == nil || !v1alpha1.Hibernated(&hibernates) {
		t.Fatalf("frozen: %+v, hibernated: %+v", frozen.Spec, hibernates.Spec)
	}
	kept := &v1alpha1.Checkpoint{}
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: hibernates.Spec.Restore.Checkpoint}, kept); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(shared.State, "checkpoints", string(kept.UID))
	if _, err := os.Stat(data); err != nil {
		t.Fatalf("the data of what was kept: %v", err)
	}

	if err := shared.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	shared.Eventually(t, 3*time.Minute, "the namespace to go", func() (bool, string) {
		err := shared.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), fmt.Sprintf("%d pods left, %+v", len(shared.PodsOf(t, ns.Name)), ns.Status.Conditions)
	})
	t.Logf("gone after %v", time.Since(began).Round(100*time.Millisecond))
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data of what was kept is there: %v", err)
	}
	again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	if err := shared.Client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Client.Delete(context.Background(), again) })
	ask("/v2/sandboxes", `{"templateID":"resting"}`, http.StatusUnauthorized) // the key was the old namespace's
	for pause, id := range ids {
		shared.Eventually(t, time.Minute, "the sandbox paused by "+pause+" to have ended", func() (bool, string) {
			s, found := shared.Sandbox(t, id)
			return !found || s.Status.Phase == v1alpha1.SandboxEnded && s.Status.FencedAt != nil, fmt.Sprintf("%+v, %+v", s.Spec.End, s.Status)
		})
		if a := shared.Do(t, nil, stack.Request{ID: id}); a.Status != http.StatusBadGateway {
			t.Errorf("a request for the sandbox paused by %s: %v", pause, a)
		}
	}
}
