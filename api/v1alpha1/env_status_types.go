package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxEnvStatus is what controllers saw of an env. Each writes its own entry of
// clusters; totals and conditions follow from all entries.
type SandboxEnvStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Members, Idle, Running and Waiting are totals over all clusters.
	// +optional
	Members int32 `json:"members"`
	// +optional
	Idle int32 `json:"idle"`
	// +optional
	Running int32 `json:"running"`
	// +optional
	Waiting int32 `json:"waiting"`
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	Clusters []EnvClusterStatus `json:"clusters,omitempty"`
	// ScalingGroups are totals of the groups over all clusters.
	// +optional
	// +listType=map
	// +listMapKey=name
	ScalingGroups []ScalingGroupStatus `json:"scalingGroups,omitempty"`
	// Conditions are Ready, TemplateConsistent and AutoscalingActive.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Env condition types.
const (
	// EnvConditionReady: some member has a pod that is idle and Ready.
	EnvConditionReady = "Ready"
	// EnvConditionTemplateConsistent: the template exists, and every member's pool is
	// as the env says.
	EnvConditionTemplateConsistent = "TemplateConsistent"
	// EnvConditionAutoscalingActive: the autoscaler sizes the members.
	EnvConditionAutoscalingActive = "AutoscalingActive"
)

// EnvClusterStatus is what the controller of one cluster saw.
type EnvClusterStatus struct {
	ClusterID string `json:"clusterID"`
	// +optional
	// +listType=map
	// +listMapKey=name
	ObservedMembers []ObservedMember `json:"observedMembers,omitempty"`
}

// MemberState is a member in one word.
// +kubebuilder:validation:Enum=Active;Saturated;Missing;Inconsistent;Draining
type MemberState string

// The states of a member.
const (
	// MemberActive: its pool is as the env says.
	MemberActive MemberState = "Active"
	// MemberSaturated: as Active, and it could not grow lately.
	MemberSaturated MemberState = "Saturated"
	// MemberMissing: it has no pool, or its pool is being deleted; the message says why.
	MemberMissing MemberState = "Missing"
	// MemberInconsistent: a pool of that name is not this env's, or cannot be brought in
	// line with the env, or the env's template does not exist.
	MemberInconsistent MemberState = "Inconsistent"
	// MemberDraining: the env does not list it any more; its pool takes no claims and is
	// deleted once it has no pods.
	MemberDraining MemberState = "Draining"
)

// ObservedMember is what was seen of a member's pool.
type ObservedMember struct {
	Name  string      `json:"name"`
	State MemberState `json:"state"`
	// +optional
	Idle int32 `json:"idle"`
	// +optional
	Running int32 `json:"running"`
	// Pending counts pods on their way to idle.
	// +optional
	Pending int32 `json:"pending"`
	// +optional
	Waiting int32 `json:"waiting"`
	// +optional
	Replicas int32 `json:"replicas"`
	// SaturatedUntil is until when the member counts as unable to grow, and other
	// members are asked first.
	// +optional
	SaturatedUntil *metav1.Time `json:"saturatedUntil,omitempty"`
	// LastAttempt is how the last try to make or change the pool ended, where it failed.
	// +optional
	LastAttempt string `json:"lastAttempt,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// ScalingGroupStatus is the sum of a group's members.
type ScalingGroupStatus struct {
	Name string `json:"name"`
	// +optional
	Idle int32 `json:"idle"`
	// +optional
	Running int32 `json:"running"`
	// +optional
	Desired int32 `json:"desired"`
	// +optional
	Waiting int32 `json:"waiting"`
}
