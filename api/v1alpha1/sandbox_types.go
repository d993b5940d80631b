package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sandbox is an isolated environment with an ID (its name). While it runs,
// exactly one pod backs it. It is the lock for its ID and the record that
// outlives the pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sbx
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Pause",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].reason`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.binding.podName`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Last-Active",type=date,JSONPath=`.status.lastActive`
// +kubebuilder:printcolumn:name="Ends",type=string,JSONPath=`.spec.timeouts.endAt`,priority=1
// +kubebuilder:printcolumn:name="Pause",type=string,JSONPath=`.status.pause.state`,priority=1
// +kubebuilder:printcolumn:name="Pause-Since",type=date,JSONPath=`.status.pause.since`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.namespace`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$')",message="a sandbox ID has 1 to 57 of a-z, 0-9 and dash, and neither begins nor ends with a dash"
type Sandbox struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SandboxSpec `json:"spec"`
	// Status is written by reconcilers/sandbox alone, but for lastActive, which
	// reconcilers/idletimeout patches.
	// +optional
	Status SandboxStatus `json:"status,omitempty"`
}

// SandboxSpec says what a sandbox is and which pod backs it.
//
// +kubebuilder:validation:XValidation:rule="self.__namespace__ == oldSelf.__namespace__",message="namespace is immutable"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.env) == has(self.env) && (!has(self.env) || self.env == oldSelf.env)",message="env is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.pool) || (has(self.env) && !has(self.binding))",message="pool is required, but for a sandbox with an env and without a binding"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.pool) == has(self.pool) && (!has(self.pool) || self.pool == oldSelf.pool)) || (has(self.env) && has(self.pool) && has(self.binding) && (!has(oldSelf.binding) || self.binding.claimID != oldSelf.binding.claimID))",message="pool is immutable, but for a sandbox with an env in the write that sets or replaces binding"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.end) || (has(self.end) && self.end == oldSelf.end)",message="end is final"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.end) || (has(oldSelf.binding) == has(self.binding) && (!has(self.binding) || self.binding == oldSelf.binding))",message="binding cannot change once the sandbox has ended"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.createdAt) == has(self.createdAt) && (!has(self.createdAt) || self.createdAt == oldSelf.createdAt)",message="createdAt is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.paused) || !self.paused || has(self.pauseMode) && has(self.binding) != has(self.restore)",message="paused needs pauseMode, and a sandbox that is bound to a pod, or has no pod and restore"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.paused) || !oldSelf.paused || !has(self.paused) || !self.paused || has(self.binding) == has(oldSelf.binding) && (!has(self.binding) || self.binding == oldSelf.binding) || !has(self.binding) && has(self.restore)",message="a paused sandbox keeps its binding, unless restore is set"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.pauseMode) || has(self.pauseMode)",message="pauseMode stays once it is set: it says that the sandbox may be frozen"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.pauseMode) || !has(self.pauseMode) || self.pauseMode == oldSelf.pauseMode || has(self.paused) && self.paused && !has(oldSelf.restore) && (self.pauseMode == 'Hibernate' || !has(oldSelf.paused) || !oldSelf.paused)",message="pauseMode changes only in the write that pauses the sandbox, or to Hibernate while it is frozen"
// +kubebuilder:validation:XValidation:rule="has(self.pauseOrder) == has(self.pauseMode)",message="pauseOrder and pauseMode are set together"
// +kubebuilder:validation:XValidation:rule="(has(self.pauseOrder) ? self.pauseOrder : 0) - (has(oldSelf.pauseOrder) ? oldSelf.pauseOrder : 0) == ((has(self.paused) && self.paused) == (has(oldSelf.paused) && oldSelf.paused) && has(self.pauseMode) == has(oldSelf.pauseMode) && (!has(self.pauseMode) || self.pauseMode == oldSelf.pauseMode) ? 0 : 1)",message="pauseOrder counts the changes of paused and pauseMode: raise it by 1 in each write that changes one of them, and in no other"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || has(self.pauseMode) && self.pauseMode == 'Hibernate'",message="restore needs pauseMode: Hibernate"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.restore) || !has(self.restore) || self.restore == oldSelf.restore",message="restore cannot change: it goes once it is done"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || oldSelf.optMap(o, has(o.restore) || has(o.paused) && o.paused && has(o.binding) && has(self.paused) && self.paused && !has(self.binding)).orValue(false)",message="restore is set in the write that takes the binding of a paused sandbox away: no sandbox is made with it, since the files are those of one that is gone",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.restore) || has(self.restore) || has(self.binding) && has(oldSelf.binding) && self.binding == oldSelf.binding && (!has(self.paused) || !self.paused)",message="restore goes only while the sandbox is bound and not paused"
type SandboxSpec struct {
	// Namespace is where the sandbox's pod lives, and whose API keys see it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Env names the SandboxEnv (same namespace) whose member the pool is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Env string `json:"env,omitempty"`
	// Pool names the SandboxPool that the pod comes from. Of a sandbox with an env it
	// is that of the last binding: it may be unset until there is one, and changes
	// with it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool,omitempty"`
	// Team owns the sandbox. Empty for one made by a public first request.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Team string `json:"team,omitempty"`
	// CreatedAt is the creation time to the microsecond, by the clock of the
	// gateway that made the sandbox; metadata.creationTimestamp has whole seconds.
	// Read it by SandboxCreatedAt.
	// +optional
	CreatedAt *metav1.MicroTime `json:"createdAt,omitempty"`
	// Images replaces container images, by container name.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Images map[string]string `json:"images,omitempty"`
	// Metadata is the user's own.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Metadata map[string]string `json:"metadata,omitempty"`
	// +optional
	Timeouts SandboxTimeouts `json:"timeouts,omitempty"`
	// Network says who may reach the sandbox.
	// +optional
	Network SandboxNetwork `json:"network,omitempty"`
	// Egress says which hosts the sandbox may connect to by name, in a pool with egress
	// ByName. Absent means all.
	// +optional
	Egress *SandboxEgress `json:"egress,omitempty"`
	// FirstRequest marks a sandbox that a request made by naming it.
	// +optional
	FirstRequest bool `json:"firstRequest,omitempty"`
	// Binding names the pod. Absent means that the sandbox has none.
	// +optional
	Binding *Binding `json:"binding,omitempty"`
	// Paused says that the sandbox's processes are to be stopped, and that no request
	// reaches it, until this is false again.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// PauseMode says what is kept while it is paused. It is set with paused and stays.
	// +optional
	PauseMode PauseMode `json:"pauseMode,omitempty"`
	// PauseOrder counts the pauses and resumes that were asked for: each write that changes
	// paused or pauseMode raises it by 1, and no other write changes it. The order that a
	// freezer gets for it has this number, and status.pause says which number it is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	PauseOrder int64 `json:"pauseOrder,omitempty"`
	// Restore names the files that the sandbox's next pod gets before requests reach it. It
	// is set when a pause gives up the sandbox's pod, and removed once the files are restored.
	// +optional
	Restore *Restore `json:"restore,omitempty"`
	// Release is the idle release in progress.
	// +optional
	Release *Release `json:"release,omitempty"`
	// End, once written, is final: the sandbox is over.
	// +optional
	End *End `json:"end,omitempty"`
}

// SandboxTimeouts bound a sandbox's life. Unset means the pool's defaults.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoResume) || self.autoResume == 'Never' || has(self.onTimeout) && self.onTimeout == 'Pause'",message="autoResume needs onTimeout: Pause"
// +kubebuilder:validation:XValidation:rule="!has(self.onTimeoutMode) || has(self.onTimeout) && self.onTimeout == 'Pause'",message="onTimeoutMode needs onTimeout: Pause"
type SandboxTimeouts struct {
	// OnTimeout says what becomes of the sandbox when EndAt has come or it was idle for
	// too long. Unset means Kill. A sandbox that does not run at that time ends either way.
	// +optional
	OnTimeout TimeoutAction `json:"onTimeout,omitempty"`
	// OnTimeoutMode says what is kept of the sandbox if it is paused then. Unset means
	// Freeze.
	// +optional
	OnTimeoutMode PauseMode `json:"onTimeoutMode,omitempty"`
	// AutoResume says whether a request resumes the sandbox while it is paused. Unset
	// means Never.
	// +optional
	AutoResume AutoResume `json:"autoResume,omitempty"`
	// Lifetime is how long the sandbox may run after a request has resumed it; from
	// five minutes to 24 hours count.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	Lifetime *metav1.Duration `json:"lifetime,omitempty"`
	// PausedFor is how long the sandbox may be paused before it ends. Unset means the
	// pool's; 0s means for ever.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	PausedFor *metav1.Duration `json:"pausedFor,omitempty"`
	// EndAt is when the sandbox ends, or is paused if OnTimeout is Pause. It has no effect
	// while the sandbox is paused.
	// +optional
	EndAt *metav1.Time `json:"endAt,omitempty"`
	// Idle is how long it may be unused; 0s means for ever.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	Idle *metav1.Duration `json:"idle,omitempty"`
	// Startup is how long it may take to run.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	Startup *metav1.Duration `json:"startup,omitempty"`
}

// SandboxNetwork says who may reach a sandbox.
type SandboxNetwork struct {
	// Private asks for the traffic token on every port but sandboxd's own.
	// +optional
	Private bool `json:"private,omitempty"`
	// Unsecured: sandboxd was initialised without a token, so that it answers
	// everyone who may reach its port.
	// +optional
	Unsecured bool `json:"unsecured,omitempty"`
}

// Binding is the claim that ties a sandbox to a pod.
type Binding struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClaimID string `json:"claimID"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID"`
}

// Release is a two-step idle release in progress.
type Release struct {
	// +kubebuilder:validation:MaxLength=63
	Token string `json:"token"`
	// +kubebuilder:validation:MaxLength=63
	ClaimID string `json:"claimID"`
}

// Restore is what was kept of a sandbox whose pod was given up.
type Restore struct {
	// Checkpoint is the name of a Checkpoint in the sandbox's namespace, of this sandbox.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$`
	Checkpoint string `json:"checkpoint"`
}

// End says why and when a sandbox was ended.
type End struct {
	Reason EndReason `json:"reason"`
	// Message is one sentence for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string      `json:"message,omitempty"`
	At      metav1.Time `json:"at"`
}

// EndReason says why a sandbox was ended.
// +kubebuilder:validation:Enum=Completed;Released;IdleTimeout;EndAt;StartupTimeout;PauseTimeout;Deleted;Failed;Canceled
// +kubebuilder:validation:MaxLength=32
type EndReason string

// The reasons for an end.
const (
	EndCompleted      EndReason = "Completed"
	EndReleased       EndReason = "Released"
	EndIdleTimeout    EndReason = "IdleTimeout"
	EndEndAt          EndReason = "EndAt"
	EndStartupTimeout EndReason = "StartupTimeout"
	EndPauseTimeout   EndReason = "PauseTimeout"
	EndDeleted        EndReason = "Deleted"
	EndFailed         EndReason = "Failed"
	EndCanceled       EndReason = "Canceled"
)

// SandboxPhase is a sandbox's state in one word.
// +kubebuilder:validation:Enum=Pending;Starting;Running;Pausing;Paused;Resuming;Ending;Ended
type SandboxPhase string

// The sandbox phases.
const (
	SandboxPending  SandboxPhase = "Pending"
	SandboxStarting SandboxPhase = "Starting"
	SandboxRunning  SandboxPhase = "Running"
	SandboxPausing  SandboxPhase = "Pausing"
	SandboxPaused   SandboxPhase = "Paused"
	SandboxResuming SandboxPhase = "Resuming"
	SandboxEnding   SandboxPhase = "Ending"
	SandboxEnded    SandboxPhase = "Ended"
)

// SandboxStatus is what is known of a sandbox.
type SandboxStatus struct {
	// ObservedGeneration is that of the spec which the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Phase SandboxPhase `json:"phase,omitempty"`
	// Reason repeats spec.end.reason, for people.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Address is the pod IP that a claim has or had. It may serve another
	// claim only after FencedAt.
	// +optional
	Address string `json:"address,omitempty"`
	// AddressClaim is the claim ID that Address is or was of: after a new
	// binding, until its pod is claimed, a former one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	AddressClaim string `json:"addressClaim,omitempty"`
	// AddressByName: it is the address of a pod with egress ByName, so its fences are
	// egress's too.
	// +optional
	AddressByName bool `json:"addressByName,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// Pause says how far the last pause or resume has come. Absent for a sandbox that was
	// never paused.
	// +optional
	Pause *PauseStatus `json:"pause,omitempty"`
	// FencedAt is when every gateway knew that the claim was over.
	// +optional
	FencedAt *metav1.MicroTime `json:"fencedAt,omitempty"`
	// LastActive is when a gateway last saw the sandbox in use. It is for people, and
	// written once a minute at most; no decision uses it.
	// +optional
	LastActive *metav1.Time `json:"lastActive,omitempty"`
	// Stop is what the pod said when it stopped.
	// +optional
	Stop *StopRecord `json:"stop,omitempty"`
	// Conditions are Ready; of a sandbox with images of its own InplaceUpdated; and of one
	// that was ever paused Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PauseState says how far a pause or resume has come.
// +kubebuilder:validation:Enum=Freezing;Frozen;NoFreezer;Saving;Hibernated;SaveFailed;FreezeFailed;Unanswered;Resuming;Resumed
type PauseState string

// PauseStatus says how far a sandbox's last pause or resume has come.
type PauseStatus struct {
	// Order is the spec.pauseOrder that the rest is about.
	Order int64 `json:"order"`
	// State is also the reason of the condition Paused.
	State PauseState `json:"state"`
	// Since is when the sandbox was paused or, once it is known to run again, when that was.
	Since metav1.Time `json:"since"`
	// Stopped: a freezer has stopped the sandbox's processes, and none has said since that
	// they run.
	// +optional
	Stopped bool `json:"stopped,omitempty"`
}

// StopReason says how a sandbox's pod stopped.
// +kubebuilder:validation:Enum=Completed;Released;Failed;Canceled
type StopReason string

// The stop reasons.
const (
	StopCompleted StopReason = "Completed"
	StopReleased  StopReason = "Released"
	StopFailed    StopReason = "Failed"
	StopCanceled  StopReason = "Canceled"
)

// StopRecord is what is kept of a pod that backed a sandbox.
type StopRecord struct {
	StopReason StopReason `json:"stopReason"`
	// +optional
	TerminatedAt *metav1.Time `json:"terminatedAt,omitempty"`
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// +optional
	FailureMessage string `json:"failureMessage,omitempty"`
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// +optional
	PodName string `json:"podName,omitempty"`
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Images are those that the pod's containers ran, by container.
	// +optional
	Images map[string]string `json:"images,omitempty"`
}

// SandboxList is a list of Sandboxes.
//
// +kubebuilder:object:root=true
type SandboxList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Sandbox `json:"items"`
}
