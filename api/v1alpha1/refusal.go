package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusals are the reasons of Degraded with which this pool cannot have its pods, and
// another one may: no node has room, or a quota, an admission plugin or sandboxpool's
// PluginManager refuses them. An image that cannot be pulled is not among them: all pools of
// the template have that image.
var refusals = []string{"Unschedulable", string(metav1.StatusReasonForbidden), PoolReasonQuota, "RefusedByPlugin"}

// noStart are the reasons for which a node cannot start a pod's container until somebody mends the
// image or the pod's template. A registry that does not answer (RegistryUnavailable) and a program
// that ends at once are not among them: both may pass.
var noStart = []string{"ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "CreateContainerConfigError", "CreateContainerError"}

// KeepsFromStarting reports whether the reason, of a condition or of a container that waits, is one
// for which a node cannot start pods of the template.
func KeepsFromStarting(reason string) bool { return slices.Contains(noStart, reason) }

// NoStartOf is the reason for which none of the pool's pods can start; empty if one runs, or may
// start, as far as is known.
func NoStartOf(pool *SandboxPool) string {
	c := meta.FindStatusCondition(pool.Status.Conditions, PoolConditionAvailable)
	if c != nil && c.Status == metav1.ConditionFalse && KeepsFromStarting(c.Reason) {
		return c.Reason
	}
	return ""
}

// RefusalOf says why a pool cannot have the pods that it is asked for while others may;
// empty if it can, as far as is known.
func RefusalOf(pool *SandboxPool) string {
	c := meta.FindStatusCondition(pool.Status.Conditions, PoolConditionDegraded)
	if c != nil && c.Status == metav1.ConditionTrue && slices.Contains(refusals, c.Reason) {
		return c.Message
	}
	return ""
}
