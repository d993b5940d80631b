package podtemplate

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// rawSockets are the capabilities with which a pod could send from another address than its
// own, by which egress knows whose a connection is.
var rawSockets = []corev1.Capability{"NET_RAW", "NET_ADMIN", "SYS_ADMIN", "ALL"}

// ByName returns the template of pods with egress ByName: egress is their only name server,
// whose address may be none, and they send from their own address alone. What only the user
// can change is an *Error.
func ByName(spec *v1alpha1.SandboxTemplateSpec, nameServer netip.Addr) (*v1alpha1.SandboxTemplateSpec, error) {
	if !nameServer.IsValid() {
		return nil, &Error{Reason: "NoEgress", Message: "egress: ByName needs `sandlane egress`, whose address the controller was not given (--egress-address)"}
	}
	spec = spec.DeepCopy()
	pod := &spec.Template.Spec
	pod.DNSPolicy, pod.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{nameServer.String()}}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			if what := forges(c.SecurityContext); what != "" {
				return nil, &Error{Reason: "TemplateRefused", Message: "container " + c.Name + " has " + what + ", with which it could send from the address of another sandbox: egress: ByName refuses that"}
			}
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			if c.SecurityContext.Capabilities == nil {
				c.SecurityContext.Capabilities = &corev1.Capabilities{}
			}
			if drop := &c.SecurityContext.Capabilities.Drop; !slices.Contains(*drop, "ALL") && !slices.Contains(*drop, "NET_RAW") {
				*drop = append(*drop, "NET_RAW")
			}
		}
	}
	return spec, nil
}

// forges names what lets a container send from other addresses; empty if nothing does.
func forges(s *corev1.SecurityContext) string {
	switch {
	case s == nil:
		return ""
	case s.Privileged != nil && *s.Privileged:
		return "privileged"
	case s.Capabilities != nil:
		for _, c := range rawSockets {
			if slices.Contains(s.Capabilities.Add, c) {
				return string(c)
			}
		}
	}
	return ""
}
