package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnvAutoscaling says how the replicas of an env's members follow demand.
type EnvAutoscaling struct {
	// Enabled lets Sandlane write members[].spec.replicas.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// Groups are sets of members that share bounds and take turns in growing. Each
	// member's config.scalingGroup must be one of them while autoscaling is enabled.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Groups []ScalingGroup `json:"groups,omitempty"`
	// +optional
	// +kubebuilder:default={}
	ScaleUp ScaleUp `json:"scaleUp,omitempty"`
	// +optional
	// +kubebuilder:default={}
	ScaleDown ScaleDown `json:"scaleDown,omitempty"`
}

// ScalingGroup bounds the replicas of its members together.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not exceed maxReplicas"
type ScalingGroup struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// MinReplicas and MaxReplicas bound the sum of the replicas of the group's members in
	// each cluster, not over all clusters. Unset means 0, and no bound beyond the members'
	// own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// ScaleUpMode says how large a buffer of idle pods is kept for a demand.
// +kubebuilder:validation:Enum=Default;Conservative;Aggressive
type ScaleUpMode string

// The modes. D is the number of a member's claimed pods and waiting claims: Conservative
// keeps one idle pod, Default a quarter of D, Aggressive half of D, each at least one.
const (
	ScaleUpDefault      ScaleUpMode = "Default"
	ScaleUpConservative ScaleUpMode = "Conservative"
	ScaleUpAggressive   ScaleUpMode = "Aggressive"
)

// ScaleUp says when and how far members grow. Unset durations mean the defaults.
type ScaleUp struct {
	// +optional
	// +kubebuilder:default=Default
	Mode ScaleUpMode `json:"mode,omitempty"`
	// Cooldown is the least time between two steps up of a member. Default 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// IdleThreshold lets a member grow beyond the buffer of its mode: once it has had no
	// idle pod for this long, if it was asked for a sandbox since its last step up. Default
	// 30s; 0s means that it never does.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	IdleThreshold *metav1.Duration `json:"idleThreshold,omitempty"`
	// QuietWindow is for how long after it was last asked for a sandbox a member keeps a
	// buffer of idle pods while no claim waits. Default 5m; 0s means always.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	QuietWindow *metav1.Duration `json:"quietWindow,omitempty"`
	// SaturationCooldown is how long a member that could not grow as asked is left
	// alone. Default 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	SaturationCooldown *metav1.Duration `json:"saturationCooldown,omitempty"`
}

// ScaleDown says when members shrink. Unset durations mean the defaults.
type ScaleDown struct {
	// IdleTimeout bounds a step down: it takes away no more replicas than there are pods
	// that have been idle for longer than this. Default 300s.
	// +optional
	// +kubebuilder:default="300s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// Stabilization is the least time from a step up or down to a step down. Default 60s.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	Stabilization *metav1.Duration `json:"stabilization,omitempty"`
}
