package egress

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Policies are those that a namespace with pools needs:
//
//   - sandlane-closed: nothing connects to pool pods, warming ones too;
//   - sandlane-gateways: but gateways and controller (for httpPost hooks) to those
//     that may serve;
//   - sandlane-egress: what pool pods connect to whose sandbox has no rules of its
//     own;
//   - sandlane-egress-processes: of these, pods with egress ByName connect to egress
//     processes too, their only name server;
//   - sandlane-egress-names: pods whose sandbox may connect by egress processes alone
//     connect to these.
//
// The system namespace is that of gateways and controller, whose pods have the label
// app=sandlane-gateway and app=sandlane-controller.
func Policies(namespace, system string, closed Closed) []*networkingv1.NetworkPolicy {
	pool := metav1.LabelSelectorRequirement{Key: v1alpha1.LabelPool, Operator: metav1.LabelSelectorOpExists}
	withoutRules := metav1.LabelSelectorRequirement{Key: v1alpha1.LabelRules, Operator: metav1.LabelSelectorOpDoesNotExist}
	ingress := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	return []*networkingv1.NetworkPolicy{
		policy(namespace, "sandlane-closed", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{pool}},
			PolicyTypes: ingress,
		}),
		policy(namespace, "sandlane-gateways", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{pool, {
				Key: v1alpha1.LabelPhase, Operator: metav1.LabelSelectorOpIn,
				Values: []string{string(v1alpha1.PodIdle), string(v1alpha1.PodStarting), string(v1alpha1.PodRunning)},
			}}},
			PolicyTypes: ingress,
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: system}},
				PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"sandlane-gateway", "sandlane-controller"},
				}}},
			}}}},
		}),
		policy(namespace, "sandlane-egress", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{pool, withoutRules}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      Rules(nil, nil, closed),
		}),
		policy(namespace, "sandlane-egress-processes", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{
				MatchLabels:      map[string]string{v1alpha1.LabelEgress: string(v1alpha1.EgressByName)},
				MatchExpressions: []metav1.LabelSelectorRequirement{pool, withoutRules},
			},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{ToProcesses(system)},
		}),
		policy(namespace, "sandlane-egress-names", networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{
				MatchLabels:      map[string]string{v1alpha1.LabelRules: v1alpha1.RulesNames},
				MatchExpressions: []metav1.LabelSelectorRequirement{pool},
			},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{ToProcesses(system)},
		}),
	}
}

func policy(namespace, name string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec,
	}
}

// YAML returns the policies of Policies as one file for `kubectl apply`.
func YAML(namespace, system string, closed Closed) ([]byte, error) {
	var out bytes.Buffer
	for i, p := range Policies(namespace, system, closed) {
		text, err := yaml.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", p.Name, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}
