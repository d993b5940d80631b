package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxPool keeps pre-warmed pods of one shape, idle until claimed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.idle,selectorpath=.status.selector
// +kubebuilder:resource:shortName=sbp
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="Paused",type=integer,JSONPath=`.status.paused`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waitingClaims`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxPods`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a pool's name has at most 63 characters: it is a label of its pods"
type SandboxPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SandboxPoolSpec `json:"spec"`
	// +optional
	Status SandboxPoolStatus `json:"status,omitempty"`
}

// SandboxPoolSpec says how many pods of which shape a pool keeps, and who may
// claim them.
//
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.templateRef)",message="set exactly one of template and templateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.allow)",message="allow is for a SandboxTemplate alone: a pool refers to one by templateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.firstRequest) || !has(self.firstRequest.egress) || has(self.egress)",message="firstRequest.egress needs egress: ByName"
type SandboxPoolSpec struct {
	// Replicas is the number of idle pods wanted. Pods for claims that wait are made
	// besides, so 0 keeps no pods and serves all the same.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=1
	Replicas int32 `json:"replicas"`
	// MaxPods bounds idle and claimed pods together. 0 means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxPods int32 `json:"maxPods,omitempty"`
	// TemplateRef names a SandboxTemplate.
	// +optional
	TemplateRef *TemplateRef `json:"templateRef,omitempty"`
	// Template is a template of the pool's own.
	// +optional
	Template *SandboxTemplateSpec `json:"template,omitempty"`
	// PodCreationImagePolicy says which image a pod's first container is created with:
	// IdleImage is the template's idleImage, if it has one.
	// +optional
	// +kubebuilder:default=PoolDefaultImage
	PodCreationImagePolicy PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	// RecyclePolicy says what becomes of a pod whose claim is over.
	// +optional
	// +kubebuilder:default=Replace
	RecyclePolicy RecyclePolicy `json:"recyclePolicy,omitempty"`
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
	// FirstRequest says who may claim a pod by just sending a request. Absent
	// means nobody.
	// +optional
	FirstRequest *FirstRequest `json:"firstRequest,omitempty"`
	// ScaleDownProtection is how long an idle pod that is too many is kept, so that a
	// claim on its way wins. Unset means 2s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	ScaleDownProtection *metav1.Duration `json:"scaleDownProtection,omitempty"`
	// Pause says how the pool's sandboxes are paused.
	// +optional
	Pause *PoolPause `json:"pause,omitempty"`
	// Egress says how the pool's sandboxes reach hosts of the internet. Unset leaves that to
	// the cluster.
	// +optional
	Egress EgressMode `json:"egress,omitempty"`
}

// EgressMode says how sandboxes reach hosts of the internet.
// +kubebuilder:validation:Enum=ByName
// +kubebuilder:validation:MaxLength=16
type EgressMode string

// EgressByName means that pods have `sandlane egress` as their only name server, so that a sandbox may
// be allowed hosts by name.
const EgressByName EgressMode = "ByName"

// TemplateRef names a SandboxTemplate.
type TemplateRef struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PodCreationImagePolicy says which image a new pool pod runs.
// +kubebuilder:validation:Enum=IdleImage;PoolDefaultImage
type PodCreationImagePolicy string

// The pod creation image policies.
const (
	ImagePolicyIdle        PodCreationImagePolicy = "IdleImage"
	ImagePolicyPoolDefault PodCreationImagePolicy = "PoolDefaultImage"
)

// RecyclePolicy says what becomes of a pod whose claim is over.
// +kubebuilder:validation:Enum=Replace;InPlace
type RecyclePolicy string

// The recycle policies.
const (
	RecycleReplace RecyclePolicy = "Replace"
	RecycleInPlace RecyclePolicy = "InPlace"
)

// FirstRequest lets a request claim a pod of the pool for a new sandbox ID.
// +kubebuilder:validation:XValidation:rule="self.access != 'Public' || !has(self.reach) || self.reach == 'Public'",message="access Public lets anybody make a sandbox, so reach must be Public too, or be left out"
type FirstRequest struct {
	// Access says what the request must show.
	Access FirstRequestAccess `json:"access"`
	// Reach says what every request for a sandbox of the pool that was made by
	// name must show, first ones and later ones. Unset means Key where access is
	// APIKey, and Public where it is Public.
	// +optional
	Reach FirstRequestReach `json:"reach,omitempty"`
	// IDPrefix reserves the IDs that begin with it: no first request makes a
	// sandbox of such an ID from another pool of the namespace. If the prefixes of several
	// pools fit an ID, those that have the longest share it. Pools of other namespaces are
	// bound too if the platform's administrator allows the prefix for this namespace: then
	// the namespace of the oldest pool that fits an ID has it. The condition IDPrefix says
	// whether they are.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]*$`
	IDPrefix string `json:"idPrefix,omitempty"`
	// Egress says which hosts a sandbox that is made so may connect to. It needs egress
	// ByName. Unset leaves that to the cluster.
	// +optional
	Egress *FirstRequestEgress `json:"egress,omitempty"`
}

// FirstRequestReach says what a request for a sandbox made by name must show.
// +kubebuilder:validation:Enum=Key;Token;Public
type FirstRequestReach string

// The kinds of reach.
const (
	// ReachKey asks for an API key of a team that owns the namespace.
	ReachKey FirstRequestReach = "Key"
	// ReachToken asks for the sandbox's traffic token, or for such a key.
	ReachToken FirstRequestReach = "Token"
	// ReachPublic asks for nothing.
	ReachPublic FirstRequestReach = "Public"
)

// FirstRequestAccess says what a first request must show.
// +kubebuilder:validation:Enum=APIKey;Public
type FirstRequestAccess string

// The kinds of first-request access.
const (
	// AccessAPIKey asks for an API key of a team that owns the namespace.
	AccessAPIKey FirstRequestAccess = "APIKey"
	// AccessPublic asks for nothing.
	AccessPublic FirstRequestAccess = "Public"
)

// PoolPhase is a pool's state in one word, worst first.
// +kubebuilder:validation:Enum=Terminating;Pending;ScalingUp;ScalingDown;Degraded;Ready
type PoolPhase string

// The pool phases, in order of precedence.
const (
	PoolTerminating PoolPhase = "Terminating"
	PoolPending     PoolPhase = "Pending"
	PoolScalingUp   PoolPhase = "ScalingUp"
	PoolScalingDown PoolPhase = "ScalingDown"
	PoolDegraded    PoolPhase = "Degraded"
	PoolReady       PoolPhase = "Ready"
)

// SandboxPoolStatus counts a pool's pods by phase.
type SandboxPoolStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Phase PoolPhase `json:"phase,omitempty"`
	// Warming, Idle, Starting, Running and Stopping count pods by phase.
	// +optional
	Warming int32 `json:"warming"`
	// +optional
	Idle int32 `json:"idle"`
	// UnavailableIdle counts idle pods that are not Ready.
	// +optional
	UnavailableIdle int32 `json:"unavailableIdle"`
	// +optional
	Starting int32 `json:"starting"`
	// +optional
	Running int32 `json:"running"`
	// +optional
	Stopping int32 `json:"stopping"`
	// +optional
	Failed int32 `json:"failed"`
	// WaitingClaims counts the sandboxes whose claims wait for a pod, over all gateways.
	// +optional
	WaitingClaims int32 `json:"waitingClaims"`
	// Paused counts the paused sandboxes that keep their pods. These pods count as running.
	// +optional
	Paused int32 `json:"paused"`
	// Drained is the value of the annotation sandlane.dev/draining for which the pool has no
	// pods and makes none; empty while it may have some.
	// +optional
	Drained string `json:"drained,omitempty"`
	// AutoScaling is what the autoscaler remembers of a pool that is a member of an
	// env.
	// +optional
	AutoScaling *PoolAutoScaling `json:"autoScaling,omitempty"`
	// IDPrefix is the idPrefix of the spec if it binds other namespaces.
	// +optional
	IDPrefix string `json:"idPrefix,omitempty"`
	// Selector selects the pool's idle pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Conditions are Available, Scaling and Degraded, and IDPrefix for a pool that has one.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PoolAutoScaling is what the autoscaler remembers of a pool. All times are the
// leading controller's.
type PoolAutoScaling struct {
	// IdleZeroSince is since when no pod has been idle; unset while one is.
	// +optional
	IdleZeroSince *metav1.Time `json:"idleZeroSince,omitempty"`
	// +optional
	LastScaleUpTime *metav1.Time `json:"lastScaleUpTime,omitempty"`
	// LastScaleUpAttemptTime and LastScaleUpAttemptResult are of the last step up that
	// was wanted, whether or not it could be made.
	// +optional
	LastScaleUpAttemptTime *metav1.Time `json:"lastScaleUpAttemptTime,omitempty"`
	// +optional
	LastScaleUpAttemptResult ScaleUpResult `json:"lastScaleUpAttemptResult,omitempty"`
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`
	// SaturatedUntil is until when the pool counts as unable to grow.
	// +optional
	SaturatedUntil *metav1.Time `json:"saturatedUntil,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// ScaleUpResult is how a step up ended.
// +kubebuilder:validation:Enum=Enough;JustRight;Insufficient;Failed
type ScaleUpResult string

// The results of a step up.
const (
	// ScaleUpEnough: all that was wanted was ordered, and more would have been allowed.
	ScaleUpEnough ScaleUpResult = "Enough"
	// ScaleUpJustRight: all that was wanted was ordered, up to a bound.
	ScaleUpJustRight ScaleUpResult = "JustRight"
	// ScaleUpInsufficient: a bound, a quota or the nodes allow less than is wanted.
	ScaleUpInsufficient ScaleUpResult = "Insufficient"
	// ScaleUpFailed: the order could not be written.
	ScaleUpFailed ScaleUpResult = "Failed"
)

// Pool condition types.
const (
	PoolConditionAvailable = "Available"
	PoolConditionScaling   = "Scaling"
	PoolConditionDegraded  = "Degraded"
	// PoolConditionIDPrefix: the pool's idPrefix binds other namespaces.
	PoolConditionIDPrefix = "IDPrefix"
)

// PoolReasonMaxPods is the reason of conditions that are as they are because of maxPods.
const PoolReasonMaxPods = "MaxPods"

// PoolReasonQuota is the reason of conditions that are as they are because a ResourceQuota
// of the pool's namespace is used up.
const PoolReasonQuota = "QuotaExceeded"

// Reasons of the condition Available of a pool that drains (AnnotationDraining).
const (
	// PoolReasonDraining: the pool still has pods.
	PoolReasonDraining = "Draining"
	// PoolReasonDrained: it has none, and makes none.
	PoolReasonDrained = "Drained"
)

// SandboxPoolList is a list of SandboxPools.
//
// +kubebuilder:object:root=true
type SandboxPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxPool `json:"items"`
}
