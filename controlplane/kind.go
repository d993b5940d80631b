package controlplane

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Kind is what the processes are whose leases a Membership or a Directory is about. Those of
// one kind do not exist for the other: a process of one that hangs delays nothing that only
// those of the other are asked for.
type Kind int

// The kinds.
const (
	// Gateways have routes.
	Gateways Kind = iota
	// Egress are the processes that connect sandboxes of ByName pools to hosts. They are
	// asked for fences of these pools' claims alone.
	Egress
)

// keys are how leases of the kind are known: by a label or, if that was taken off, by the
// annotation with the address that controllers call.
func (k Kind) keys() (label, address string) {
	if k == Egress {
		return v1alpha1.LabelEgressLease, v1alpha1.AnnotationEgressAddress
	}
	return v1alpha1.LabelGateway, v1alpha1.AnnotationGatewayAddress
}

// has reports whether a lease is one of the kind's.
func (k Kind) has(l *coordinationv1.Lease) bool {
	label, address := k.keys()
	return l.Labels[label] != "" || l.Annotations[address] != ""
}
