package gateway

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/test/kubetest"
)

// namedPool makes the pool "named", whose first requests' sandboxes connect to one name.
func (w *world) namedPool() {
	w.t.Helper()
	w.pool("named", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
		p.Spec.Egress = v1alpha1.EgressByName
		p.Spec.FirstRequest.Egress = &v1alpha1.FirstRequestEgress{AllowNames: []string{"api.example"}}
	})
}

// A sandbox that a first request makes connects to the names of its pool alone, from its pod's
// claim on, whichever process completes that, and no client can open more.
func TestFirstRequestHasThePoolsNames(t *testing.T) {
	w := newWorld(t)
	d := w.sandboxd()
	w.namedPool()
	g := w.gateway()
	x := g.api.sandboxes
	labelled := func(pod *corev1.Pod) {
		t.Helper()
		is := &corev1.Pod{}
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pod), is); err != nil {
			t.Fatal(err)
		}
		if is.Labels[v1alpha1.LabelSandboxID] == "" || is.Labels[v1alpha1.LabelRules] != v1alpha1.RulesNames {
			t.Errorf("the pod's labels are %v", is.Labels)
		}
	}

	id, pod := kubetest.Name("first"), w.pod("named", d.addr, nil)
	r := w.request(id, "named")
	r.New = true
	kubetest.Eventually(t, "a first request to get the pod", func() error {
		return g.activator.Activate(t.Context(), r)
	})
	s := w.sandbox(id)
	if e := s.Spec.Egress; e == nil || !e.DenyAll || !slices.Equal(e.AllowNames, []string{"api.example"}) || len(e.Rules) > 0 {
		t.Errorf("it may connect to %+v", e)
	}
	labelled(pod)
	wantError(t, "no rules", x.SetEgress(t.Context(), w.ns, id, restapi.Egress{}), restapi.ErrInvalid)
	wantError(t, "headers", x.SetEgress(t.Context(), w.ns, id, restapi.Egress{Rules: map[string]map[string]string{"api.example": {"X": "k"}}}), restapi.ErrInvalid)
	shown, err := x.Get(t.Context(), w.ns, id)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := x.AskedEgress(t.Context(), shown)
	if err != nil || asked.AllowOut == nil || !slices.Equal(*asked.AllowOut, []string{"api.example"}) || asked.DenyOut == nil || !slices.Equal(*asked.DenyOut, []string{"0.0.0.0/0"}) {
		t.Errorf("it shows %+v, %v", asked, err)
	}

	// Its gateway died before it wrote the claim.
	d = w.sandboxd()
	pod = w.pod("named", d.addr, nil)
	s = &v1alpha1.Sandbox{}
	s.Name = kubetest.Name("orphan")
	s.Spec.Namespace, s.Spec.Pool, s.Spec.FirstRequest = w.ns, "named", true
	s.Spec.Egress = (&v1alpha1.FirstRequestEgress{}).Sandbox()
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "claim", PodName: pod.Name, PodUID: string(pod.UID)}
	if err := w.c.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "another gateway to complete the claim", func() error {
		return g.activator.Activate(t.Context(), w.request(s.Name, "named"))
	})
	labelled(pod)
}

// A create of the REST API has nothing of what the pool says for first requests.
func TestCreateHasNoNamesOfThePool(t *testing.T) {
	w := newWorld(t)
	d := w.sandboxd()
	w.namedPool()
	g := w.gateway()
	pod := w.pod("named", d.addr, nil)
	n := w.new(newID())
	n.Pool = "named"
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	is := &corev1.Pod{}
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pod), is); err != nil {
		t.Fatal(err)
	}
	if s := w.sandbox(n.ID); s.Spec.Egress != nil || is.Labels[v1alpha1.LabelRules] != "" {
		t.Errorf("it may connect to %+v, its pod's labels are %v", s.Spec.Egress, is.Labels)
	}
}
