package egress

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// all are the two ranges of every address.
var all = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// Rules returns the egress rules of one policy: to every address that is not denied, and
// to allowed ones although they are denied, but never to a closed one. They also permit
// the cluster's name server, unless deny has both ranges of all. An empty result permits
// no connection.
func Rules(allow, deny []netip.Prefix, closed Closed) []networkingv1.NetworkPolicyEgressRule {
	var peers []networkingv1.NetworkPolicyPeer
	add := func(p netip.Prefix, except []string) {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: p.String(), Except: except}})
	}
	for _, a := range allow {
		if !closed.Covers(a) {
			add(a, closed.inside(a))
		}
	}
	open := false
	for _, everything := range all {
		var except []string
		denied := false
		for _, d := range deny {
			denied = denied || d == everything
			if d.Addr().Is4() == everything.Addr().Is4() {
				except = append(except, d.String())
			}
		}
		if !denied {
			add(everything, append(except, closed.inside(everything)...))
			open = true
		}
	}
	var rules []networkingv1.NetworkPolicyEgressRule
	if len(peers) > 0 { // a rule without peers would allow everything
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: peers})
	}
	if open {
		rules = append(rules, names())
	}
	return rules
}

// names is the rule for the cluster's name server, whose address may be in a range
// that is closed.
func names() networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53)},
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		}},
	}
}

// ToProcesses is the rule for egress processes, whose pods are in the system namespace with
// the label app=sandlane-egress.
func ToProcesses(system string) networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53), port(corev1.ProtocolTCP, 80), port(corev1.ProtocolTCP, 443)},
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: system}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "sandlane-egress"}},
		}},
	}
}

func port(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(number))}
}
