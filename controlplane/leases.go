package controlplane

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

// MemberLeases is what a Membership needs of the API: the leases of the system
// namespace. client-go's CoordinationV1().Leases(namespace) is one.
type MemberLeases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// DirectoryLeases is what a Directory needs of the API: the leases of the
// system namespace. client-go's CoordinationV1().Leases(namespace) is one.
type DirectoryLeases interface {
	List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// holderPatch is a JSON Patch that applies only while the lease has the holder
// from, and then sets the holder to. A zero renew leaves the renew time alone.
func holderPatch(from, to string, renew time.Time) []byte {
	const holder = "/spec/holderIdentity"
	p := writes.Patch{}.Test(holder, from)
	if to != from {
		p = p.Set(holder, to)
	}
	if !renew.IsZero() {
		p = p.Set("/spec/renewTime", metav1.NewMicroTime(renew))
	}
	return p.Bytes()
}

// holderOf returns the lease's holder as it stands; empty when it has none.
func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// leaseSeconds rounds up: the API knows whole seconds, and the controller must
// never count less than the gateway does.
func leaseSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// onlyThis lets a delete apply to exactly the object that was read.
func onlyThis(l *coordinationv1.Lease) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}}
}

// gatewayLabel is the value of a lease's label. A label holds 63 characters, a
// name may be longer; its end, with the pod's UID, tells gateways apart.
func gatewayLabel(name string) string {
	const limit = 63
	if len(name) > limit {
		name = name[len(name)-limit:]
	}
	return strings.TrimLeft(name, "-.")
}
