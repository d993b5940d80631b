// Package condition makes the conditions of pools and envs: Of says whether one holds, and
// why. A caller sets the generation and the time with meta.SetStatusCondition.
//
// reconcilers/sandboxpool and reconcilers/sandboxenv call it.
package condition

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Of returns the condition of this kind, True or False.
func Of(kind string, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
