package node

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNameServersOfPods(t *testing.T) {
	egress := netip.MustParseAddr("198.18.0.1")
	edns := "2"
	for _, c := range []struct {
		policy corev1.DNSPolicy
		config *corev1.PodDNSConfig
		want   string
		asks   bool
	}{
		{corev1.DNSClusterFirst, nil, "", false},
		{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"198.18.0.1"}}, "nameserver 198.18.0.1\n", true},
		{corev1.DNSClusterFirst, &corev1.PodDNSConfig{Nameservers: []string{"198.18.0.1"}}, "nameserver 198.18.0.1\n", false},
		{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"198.18.0.1", "1.1.1.1"}}, "nameserver 198.18.0.1\nnameserver 1.1.1.1\n", false},
		{
			corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"a.example", "b.example"}, Options: []corev1.PodDNSConfigOption{{Name: "rotate"}, {Name: "ndots", Value: &edns}}},
			"nameserver 1.1.1.1\nsearch a.example b.example\noptions rotate\noptions ndots:2\n", false,
		},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: c.policy, DNSConfig: c.config}}
		if got := resolvOf(pod); got != c.want {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
		if asks := asksEgress(pod, egress); asks != c.asks {
			t.Errorf("%s, %+v: asks egress: %v", c.policy, c.config, asks)
		}
	}
}
