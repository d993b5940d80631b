package sandboxpool

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// Pods with egress ByName have egress as their only name server and cannot send from another
// address; without an address of egress there are none.
func TestByName(t *testing.T) {
	container := corev1.Container{Name: "main", Image: "real"}
	pool := &v1alpha1.SandboxPool{}
	pool.Spec.Egress = v1alpha1.EgressByName
	pool.Spec.Template = &v1alpha1.SandboxTemplateSpec{}
	pool.Spec.Template.Template.Spec.Containers = []corev1.Container{container}
	r := &SandboxPoolReconciler{}
	var refused *podtemplate.Error
	if _, err := r.template(t.Context(), pool); !errors.As(err, &refused) || refused.Reason != "NoEgress" {
		t.Errorf("without an address: %v", err)
	}
	r.EgressAddress = netip.MustParseAddr("10.0.0.9")
	tpl, err := r.template(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	pod := tpl.NewPod(pool)
	if pod.Labels[v1alpha1.LabelEgress] != "ByName" || pod.Spec.DNSPolicy != corev1.DNSNone || !slices.Equal(pod.Spec.DNSConfig.Nameservers, []string{"10.0.0.9"}) {
		t.Errorf("%v, %s, %v", pod.Labels, pod.Spec.DNSPolicy, pod.Spec.DNSConfig)
	}
	if drop := pod.Spec.Containers[0].SecurityContext.Capabilities.Drop; !slices.Equal(drop, []corev1.Capability{"NET_RAW"}) {
		t.Errorf("drops %v", drop)
	}
	if pool.Spec.Template.Template.Spec.DNSPolicy != "" {
		t.Error("the pool's own template was changed")
	}
	plain := pool.DeepCopy()
	plain.Spec.Egress = ""
	other, err := r.template(t.Context(), plain)
	if err != nil || other.Hash == tpl.Hash || other.NewPod(plain).Labels[v1alpha1.LabelEgress] != "" {
		t.Errorf("a pool without: %v, the same pods: %v", err, other.Hash == tpl.Hash)
	}
	yes := true
	for _, s := range []*corev1.SecurityContext{{Privileged: &yes}, {Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}}}} {
		pool.Spec.Template.Template.Spec.Containers[0].SecurityContext = s
		if _, err := r.template(t.Context(), pool); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
