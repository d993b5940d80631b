package helm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A pod that a policy selects has a chain with a line for each rule, whose last line drops
// the rest; a pod that no policy selects has no chain.
func TestTableOfPolicies(t *testing.T) {
	pod := func(namespace, name, ip string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Status: corev1.PodStatus{PodIP: ip}}
	}
	port := intstr.FromInt32(9443)
	e := enforced{
		pods: corev1.PodList{Items: []corev1.Pod{
			pod("a", "server", "10.0.0.1", map[string]string{"app": "server"}),
			pod("a", "client", "10.0.0.2", map[string]string{"app": "client"}),
			pod("b", "client", "10.0.0.3", map[string]string{"app": "client"}),
		}},
		policies: networkingv1.NetworkPolicyList{Items: []networkingv1.NetworkPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}}},
					Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
				}},
				Egress: []networkingv1.NetworkPolicyEgressRule{{
					To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.1.0.0/16"}}}},
				}},
			},
		}}},
	}
	table, err := e.table()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"chain ingress0 {\nip saddr { 10.0.0.2 } tcp dport 9443 return\ndrop\n}\n",
		"chain egress0 {\nip daddr != { 10.1.0.0/16 } return\ndrop\n}\n",
		"ip saddr vmap { 10.0.0.1 : jump egress0 }\nip daddr vmap { 10.0.0.1 : jump ingress0 }\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks\n%s:\n%s", want, table)
		}
	}
	if strings.Count(table, "drop") != 2 {
		t.Errorf("%s", table)
	}
	e.policies.Items[0].Spec.Ingress[0].Ports[0].Port = nil
	if _, err := e.table(); err == nil {
		t.Error("a rule that the stand-in does not know is taken")
	}
}
