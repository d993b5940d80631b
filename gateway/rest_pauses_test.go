package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/gateway/sandboxes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// keyOfWorld is an API key of a world's namespace.
type keyOfWorld struct{ ns string }

func (k keyOfWorld) Verify(context.Context, string) (e2b.KeyOwner, error) {
	return e2b.KeyOwner{Team: "team", Namespace: k.ns, KeyID: "key"}, nil
}

// rest asks the REST API of a gateway.
func (w *world) rest(g *gateway, method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	s, err := e2b.NewServer(e2b.Options{
		Sandboxes: g.api.sandboxes, Templates: sandboxes.NewTemplates(g.index, g.api.node), Keys: keyOfWorld{w.ns}, Tokens: g.tokens,
		Snapshots: g.api.kept.backend(), Domain: "localhost", Log: w.log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(w.t.Context())
	r.Header.Set("X-API-KEY", "e2b_a")
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, r)
	return answer
}

// adopt makes the env that the controller makes for a pool (--adopt-pools), and waits until
// the gateway knows it.
func (w *world) adopt(g *gateway, pool string) {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: pool}, p); err != nil {
		w.t.Fatal(err)
	}
	e := &v1alpha1.SandboxEnv{}
	e.Namespace, e.Name, e.Spec.TemplateRef.Name = w.ns, pool, "none"
	e.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{{Name: pool}}}}
	if err := w.c.Create(w.t.Context(), e); err != nil {
		w.t.Fatal(err)
	}
	kubetest.Eventually(w.t, 20*time.Second, "the index to show the env", func() error {
		if _, ok := g.index.Env(w.ns, pool); !ok {
			return errors.New("not there")
		}
		return nil
	})
}

// A snapshot can be restored after its pool was adopted.
func TestSnapshotOfAnAdoptedPool(t *testing.T) {
	w := newResting(t, 1, nil)
	g := w.gateways[0]
	w.adopt(g, "resting")
	answer := w.rest(g, http.MethodPost, "/sandboxes/"+w.id+"/snapshots", "{}")
	var kept struct{ SnapshotID string }
	if err := json.Unmarshal(answer.Body.Bytes(), &kept); err != nil || answer.Code != http.StatusCreated {
		t.Fatalf("the snapshot: %d %s", answer.Code, answer.Body)
	}
	d := w.next("sha256:1")
	answer = w.rest(g, http.MethodPost, "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q}`, kept.SnapshotID))
	var made struct{ SandboxID, TemplateID string }
	if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil || answer.Code != http.StatusCreated {
		t.Fatalf("the create: %d %s", answer.Code, answer.Body)
	}
	if s := w.sandbox(made.SandboxID); s.Spec.Pool != "resting" || made.TemplateID != "resting" || d.files.restored != "the files" {
		t.Errorf("template %s, pool %s, restored %q", made.TemplateID, s.Spec.Pool, d.files.restored)
	}
}
