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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// keyOfWorld is an API key of a world's namespace.
type keyOfWorld struct{ ns string }

func (k keyOfWorld) Verify(context.Context, string) (routing.KeyOwner, error) {
	return routing.KeyOwner{Team: "team", Namespace: k.ns, KeyID: "key"}, nil
}

// rest asks the REST API of a gateway.
func (w *world) rest(g *gateway, method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	s, err := restapi.NewServer(restapi.Options{
		Sandboxes: g.api.sandboxes, Templates: backend.NewTemplates(g.index, g.api.node), Keys: keyOfWorld{w.ns}, Tokens: g.tokens,
		Snapshots: g.api.snapshots, Domain: "localhost", Log: w.log,
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
	kubetest.Eventually(w.t, "the index to show the env", func() error {
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
	if s := w.sandbox(made.SandboxID); s.Spec.Pool != "resting" || made.TemplateID+":default" != kept.SnapshotID || d.filesCalls.restored != "the files" {
		t.Errorf("template %s, pool %s, restored %q", made.TemplateID, s.Spec.Pool, d.filesCalls.restored)
	}
}

// A sandbox of an env pauses at its timeout as its members say, each default where they
// agree; a client may ask for what all members allow.
func TestPausesOfEnvs(t *testing.T) {
	freeze, hibernate := v1alpha1.PauseFreeze, v1alpha1.PauseHibernate
	pool := func(action v1alpha1.TimeoutAction, resume v1alpha1.AutoResume, modes ...v1alpha1.PauseMode) *v1alpha1.PoolPause {
		return &v1alpha1.PoolPause{OnTimeout: action, AutoResume: resume, Modes: modes}
	}
	w := newWorld(t)
	g := w.gatewayWith(kubetest.Config(t), func(o *Options) { o.CheckpointDir = t.TempDir() })
	for name, c := range map[string]struct {
		members []*v1alpha1.PoolPause
		body    string
		status  int
		want    v1alpha1.SandboxTimeouts // endAt and lifetime apart
	}{
		"freezes-not":       {[]*v1alpha1.PoolPause{pool("", "", hibernate), pool("", "", hibernate)}, `,"autoPause":true`, 400, v1alpha1.SandboxTimeouts{}},
		"one-freezes-not":   {[]*v1alpha1.PoolPause{nil, pool("", "", hibernate)}, `,"autoPause":true`, 400, v1alpha1.SandboxTimeouts{}},
		"hibernates-alone":  {[]*v1alpha1.PoolPause{pool("", "", hibernate)}, `,"autoPause":true,"autoPauseMemory":false`, 201, v1alpha1.SandboxTimeouts{OnTimeout: "Pause", OnTimeoutMode: hibernate}},
		"one-freezes-alone": {[]*v1alpha1.PoolPause{pool("", "", freeze, hibernate), nil}, `,"autoPause":true,"autoPauseMemory":false`, 400, v1alpha1.SandboxTimeouts{}},
		"freezes":           {[]*v1alpha1.PoolPause{pool("", "", freeze, hibernate), nil}, `,"autoPause":true`, 201, v1alpha1.SandboxTimeouts{OnTimeout: "Pause"}},
		"agree":             {[]*v1alpha1.PoolPause{pool("Pause", "Always"), pool("Pause", "Always", freeze)}, ``, 201, v1alpha1.SandboxTimeouts{OnTimeout: "Pause", AutoResume: "Always"}},
		"agree-on-the-end":  {[]*v1alpha1.PoolPause{pool("Pause", "Always"), pool("Pause", "WithMemory")}, ``, 201, v1alpha1.SandboxTimeouts{OnTimeout: "Pause"}},
		"agree-on-nothing":  {[]*v1alpha1.PoolPause{pool("Pause", "WithMemory"), nil}, ``, 201, v1alpha1.SandboxTimeouts{}},
		"hibernate-both":    {[]*v1alpha1.PoolPause{pool("Pause", "Always", hibernate), pool("Pause", "Always", hibernate)}, ``, 201, v1alpha1.SandboxTimeouts{OnTimeout: "Pause", OnTimeoutMode: hibernate, AutoResume: "Always"}},
		"one-freezes":       {[]*v1alpha1.PoolPause{pool("Pause", "", hibernate), pool("Pause", "", freeze, hibernate)}, ``, 201, v1alpha1.SandboxTimeouts{}},
		"asks-for-a-kill":   {[]*v1alpha1.PoolPause{pool("Pause", "WithMemory")}, `,"autoPause":false`, 201, v1alpha1.SandboxTimeouts{}},
		"with-memory":       {[]*v1alpha1.PoolPause{pool("Pause", "WithMemory")}, ``, 201, v1alpha1.SandboxTimeouts{OnTimeout: "Pause", AutoResume: "WithMemory"}},
	} {
		e := &v1alpha1.SandboxEnv{}
		e.Namespace, e.Name, e.Spec.TemplateRef.Name = w.ns, name, "none"
		e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local"}}
		for i := range c.members {
			e.Spec.Clusters[0].Members = append(e.Spec.Clusters[0].Members, v1alpha1.EnvMember{Name: fmt.Sprint(name, "-", i)})
		}
		if err := w.c.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for i, m := range e.Spec.Clusters[0].Members {
			w.pool(m.Name, v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
				p.Spec.Pause = c.members[i]
			})
		}
		w.pod(name+"-0", w.sandboxd().addr, nil)
		kubetest.Eventually(t, "the index to show the members", func() error {
			if n := len(g.index.Members(w.ns, name)); n != len(c.members) {
				return fmt.Errorf("it shows %d", n)
			}
			return nil
		})
		answer := w.rest(g, http.MethodPost, "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q%s}`, name, c.body))
		if answer.Code != c.status {
			t.Errorf("%s: %d %s, want %d", name, answer.Code, answer.Body, c.status)
			continue
		}
		if c.status != http.StatusCreated {
			continue
		}
		var made struct{ SandboxID string }
		if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		got := w.sandbox(made.SandboxID).Spec.Timeouts
		if got.OnTimeout != c.want.OnTimeout || got.OnTimeoutMode != c.want.OnTimeoutMode || got.AutoResume != c.want.AutoResume {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// What a pool says of auto-resume is what its sandboxes get of the REST API too, before and
// after it is adopted.
func TestAutoResumeOfAPoolByREST(t *testing.T) {
	w := newWorld(t)
	w.pool("resting", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
		p.Spec.Pause = &v1alpha1.PoolPause{OnTimeout: v1alpha1.TimeoutPause, AutoResume: v1alpha1.AutoResumeAlways}
	})
	g := w.gateway()
	for _, adopted := range []bool{false, true} {
		if adopted {
			w.adopt(g, "resting")
		}
		w.pod("resting", w.sandboxd().addr, nil)
		answer := w.rest(g, http.MethodPost, "/v2/sandboxes", `{"templateID":"resting"}`)
		var made struct{ SandboxID string }
		if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil || answer.Code != http.StatusCreated {
			t.Fatalf("adopted %v: %d %s", adopted, answer.Code, answer.Body)
		}
		s := w.sandbox(made.SandboxID)
		if o := s.Spec.Timeouts; o.OnTimeout != v1alpha1.TimeoutPause || o.AutoResume != v1alpha1.AutoResumeAlways || (s.Spec.Env == "resting") != adopted {
			t.Errorf("adopted %v: of env %q, %+v", adopted, s.Spec.Env, o)
		}
	}
}

// A pause of a paused sandbox is 409, whatever its pool allows: SDKs return false then.
func TestPauseOfWhatIsPaused(t *testing.T) {
	w := newResting(t, 1, nil)
	g := w.gateways[0]
	pauses := func(what, id string) {
		t.Helper()
		for _, body := range []string{`{}`, `{"memory":true}`, `{"memory":false}`} {
			if answer := w.rest(g, http.MethodPost, "/sandboxes/"+id+"/pause", body); answer.Code != http.StatusConflict {
				t.Errorf("%s, %s: %d %s", what, body, answer.Code, answer.Body)
			}
		}
	}
	w.ready()
	frozen := w.new(newID()) // of base, which does not allow Hibernate
	if _, err := g.create(t, frozen); err != nil {
		t.Fatal(err)
	}
	if answer := w.rest(g, http.MethodPost, "/sandboxes/"+frozen.ID+"/pause", `{}`); answer.Code != http.StatusNoContent {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	pauses("frozen", frozen.ID)

	w.pause()
	w.hibernates("paused")
	pool := &v1alpha1.SandboxPool{}
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "resting"}, pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Pause.Modes = []v1alpha1.PauseMode{v1alpha1.PauseHibernate}
	if err := w.c.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the gateway to see the pool's modes", func() error {
		if p, _ := g.index.Pool(w.ns, "resting"); v1alpha1.AllowsPause(p.Spec, v1alpha1.PauseFreeze) {
			return errors.New("it allows Freeze")
		}
		return nil
	})
	pauses("hibernating", w.id)
	if err := w.c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the gateway to see that the pool is gone", func() error {
		if _, there := g.index.Pool(w.ns, "resting"); there {
			return errors.New("it is there")
		}
		return nil
	})
	pauses("hibernating, its pool is gone", w.id)
}
