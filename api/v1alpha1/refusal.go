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

// RefusalOf says why a pool cannot have the pods that it is asked for while others may;
// empty if it can, as far as is known.
func RefusalOf(pool *SandboxPool) string {
	c := meta.FindStatusCondition(pool.Status.Conditions, PoolConditionDegraded)
	if c != nil && c.Status == metav1.ConditionTrue && slices.Contains(refusals, c.Reason) {
		return c.Message
	}
	return ""
}
