package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxEnv is what users ask for by name. It keeps member pools of one template,
// and a claim goes to the member that can serve it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sbe
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.templateRef.name`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="an env's name has at most 63 characters: it is a label of its pods"
type SandboxEnv struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SandboxEnvSpec `json:"spec"`
	// +optional
	Status SandboxEnvStatus `json:"status,omitempty"`
}

// SandboxEnvSpec says which pools an env has in which cluster, and how they follow
// demand.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.autoscaling.enabled) || !self.autoscaling.enabled || !has(self.clusters) || self.clusters.all(c, !has(c.members) || c.members.all(m, has(self.autoscaling.groups) && self.autoscaling.groups.exists(g, g.name == (has(m.config.scalingGroup) ? m.config.scalingGroup : 'default'))))",message="config.scalingGroup of each member must be one of autoscaling.groups while autoscaling is enabled"
// +kubebuilder:validation:XValidation:rule="!has(self.firstRequest) || !has(self.firstRequest.egress) || !has(self.clusters) || self.clusters.all(c, !has(c.members) || c.members.all(m, has(m.spec.egress)))",message="firstRequest.egress needs egress: ByName of each member"
type SandboxEnvSpec struct {
	// TemplateRef names the SandboxTemplate of all members.
	TemplateRef TemplateRef `json:"templateRef"`
	// FirstRequest is that of every member pool.
	// +optional
	FirstRequest *FirstRequest `json:"firstRequest,omitempty"`
	// Clusters are the env's pools by cluster. A controller works on the entry of its
	// own --cluster-id alone.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=16
	Clusters []EnvCluster `json:"clusters,omitempty"`
	// Autoscaling sizes the members by demand. Absent means off.
	// +optional
	Autoscaling *EnvAutoscaling `json:"autoscaling,omitempty"`
}

// HasCluster reports whether the env has an entry of the cluster ID.
func (s *SandboxEnvSpec) HasCluster(id string) bool {
	return slices.ContainsFunc(s.Clusters, func(c EnvCluster) bool { return c.ClusterID == id })
}

// EnvCluster is an env's pools in one cluster.
type EnvCluster struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Members []EnvMember `json:"members,omitempty"`
}

// EnvMember is one pool of an env. The pool has the member's name and the env's
// namespace.
type EnvMember struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Labels and Annotations are put on the pool. Others that the pool has stay there, also
	// those that the member listed once and lists no more.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sandlane.dev/'))",message="labels below sandlane.dev/ are set by Sandlane alone"
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sandlane.dev/'))",message="annotations below sandlane.dev/ are set by Sandlane alone"
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	// +kubebuilder:default={}
	Spec EnvMemberSpec `json:"spec,omitempty"`
	// +optional
	// +kubebuilder:default={}
	Config EnvMemberConfig `json:"config,omitempty"`
}

// EnvMemberSpec is a SandboxPoolSpec without the fields that all members share. The pool's
// spec is kept equal to it: a field that is unset here, except replicas, has its default in
// the pool.
type EnvMemberSpec struct {
	// Replicas is the number of idle pods wanted. Unset leaves the pool's number as it is;
	// a new pool begins with 1, within config's bounds. Where autoscaling is enabled the
	// autoscaler writes it: leave replicas out of what you apply.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`
	// MaxPods bounds idle and claimed pods together. 0 means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxPods int32 `json:"maxPods,omitempty"`
	// +optional
	// +kubebuilder:default=PoolDefaultImage
	PodCreationImagePolicy PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	// +optional
	// +kubebuilder:default=Replace
	RecyclePolicy RecyclePolicy `json:"recyclePolicy,omitempty"`
	// +optional
	Egress EgressMode `json:"egress,omitempty"`
	// StartupTimeout is how long a new pod may take to become Ready, and a claimed one
	// until its sandbox runs; one that takes longer fails. Unset means the template's, then
	// one minute.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	StartupTimeout *metav1.Duration `json:"startupTimeout,omitempty"`
	// IdleTimeout is how long a sandbox may be unused before it ends, or is paused if its
	// onTimeout says so; at least 4s count. Unset means the template's, then five minutes;
	// 0s means never.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// ScaleDownProtection is how long an idle pod that is too many is kept. Unset means
	// the pool's default.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	ScaleDownProtection *metav1.Duration `json:"scaleDownProtection,omitempty"`
	// Pause says how the pool's sandboxes are paused.
	// +optional
	Pause *PoolPause `json:"pause,omitempty"`
}

// EnvMemberConfig says where claims go first and how the member scales. Of all
// priorities the lower number comes first; equal ones go by name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not exceed maxReplicas"
type EnvMemberConfig struct {
	// ScalingGroup is the group of autoscaling that the member belongs to.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	ScalingGroup string `json:"scalingGroup,omitempty"`
	// Priority orders members for claims.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// ScaleUpPriority and ScaleDownPriority order members of a group for growing and
	// shrinking.
	// +optional
	ScaleUpPriority int32 `json:"scaleUpPriority,omitempty"`
	// +optional
	ScaleDownPriority int32 `json:"scaleDownPriority,omitempty"`
	// MinReplicas and MaxReplicas bound what the autoscaler makes of spec.replicas.
	// Unset means 0 and no bound. Pods are bounded by spec.maxPods alone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// SandboxEnvList is a list of SandboxEnvs.
//
// +kubebuilder:object:root=true
type SandboxEnvList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxEnv `json:"items"`
}
