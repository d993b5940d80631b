package e2b

import (
	"fmt"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Rules for outgoing connections are a policy for the sandbox's pod, from the
// create until the sandbox's record goes. That pods obey it is up to a
// cluster's network, which the local node has none of.
func TestNetworkRules(t *testing.T) {
	t.Parallel() // it waits more than it works
	m := newTeam(t, "network", func(*v1alpha1.SandboxPool) {})
	s := m.create(t, `{"templateID":"base","allow_internet_access":false,"network":{"allowOut":["10.0.0.0/8"]}}`)
	key := client.ObjectKey{Namespace: m.namespace, Name: "sandbox-" + s.SandboxID}
	policy := func() *networkingv1.NetworkPolicy {
		t.Helper()
		p := &networkingv1.NetworkPolicy{}
		err := shared.Client.Get(t.Context(), key, p)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := policy()
	if p == nil || len(p.Spec.Egress) != 1 || len(p.Spec.Egress[0].To) != 1 || p.Spec.Egress[0].To[0].IPBlock.CIDR != "10.0.0.0/8" {
		t.Fatalf("the policy is %+v", p)
	}
	shared.WaitIdle(t, m.namespace, "base", 1) // so that there is a pod for it to miss
	selected := ""
	for _, pod := range shared.PodsOf(t, m.namespace) {
		if labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(labels.Set(pod.Labels)) {
			selected += pod.Labels[v1alpha1.LabelSandboxID] + " "
		}
	}
	if selected != s.SandboxID+" " {
		t.Errorf("it is for the pods of %q, want %s", selected, s.SandboxID)
	}
	for _, c := range []struct {
		body   string
		status int
		there  bool
	}{
		{`{}`, 204, true},
		{`{"denyOut":["192.0.2.0/24"]}`, 204, true},
		{`{"denyOut":["example.com"]}`, 400, true},
	} {
		if a := m.ask(t, "PUT", "/sandboxes/"+s.SandboxID+"/network", c.body); a.Status != c.status {
			t.Errorf("%s: %v, want %d", c.body, a, c.status)
		}
		if there := policy() != nil; there != c.there {
			t.Errorf("%s: there is a policy: %v", c.body, there)
		}
	}
	if a := m.ask(t, "DELETE", "/sandboxes/"+s.SandboxID, ""); a.Status != 204 {
		t.Fatalf("kill: %v", a)
	}
	if policy() == nil {
		t.Error("the policy went before the pod")
	}
	if err := shared.Client.Delete(t.Context(), &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: s.SandboxID}}); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, time.Minute, "the policy to go with the sandbox", func() (bool, string) {
		p := policy()
		return p == nil, fmt.Sprint(p)
	})
}
