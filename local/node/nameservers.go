package node

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resolvOf is the /etc/resolv.conf of a pod that names its name servers; empty if it names
// none, since this node has none for it.
func resolvOf(pod *corev1.Pod) string {
	config := pod.Spec.DNSConfig
	if config == nil || len(config.Nameservers) == 0 {
		return ""
	}
	var text strings.Builder
	for _, server := range config.Nameservers {
		text.WriteString("nameserver " + server + "\n")
	}
	if len(config.Searches) > 0 {
		text.WriteString("search " + strings.Join(config.Searches, " ") + "\n")
	}
	for _, o := range config.Options {
		text.WriteString("options " + o.Name)
		if o.Value != nil {
			text.WriteString(":" + *o.Value)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// asksEgress reports whether a pod has the egress process at the address as its only name
// server, as those of pools with egress ByName do.
func asksEgress(pod *corev1.Pod, egress netip.Addr) bool {
	config := pod.Spec.DNSConfig
	return pod.Spec.DNSPolicy == corev1.DNSNone && config != nil && len(config.Nameservers) == 1 && config.Nameservers[0] == egress.String()
}
