package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusals are the reasons of Degraded which say that the pool itself cannot have its pods:
// no node has room, a quota or an admission plugin refuses them, or one of Sandlane's. An
// image that cannot be pulled is none: another pool of the template has it too.
var refusals = []string{"Unschedulable", string(metav1.StatusReasonForbidden), "RefusedByPlugin"}

// RefusalOf says why a pool cannot have the pods that it is asked for while others may;
// empty if it can, as far as is known.
func RefusalOf(pool *SandboxPool) string {
	c := meta.FindStatusCondition(pool.Status.Conditions, PoolConditionDegraded)
	if c != nil && c.Status == metav1.ConditionTrue && slices.Contains(refusals, c.Reason) {
		return c.Message
	}
	return ""
}
