package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Checkpoint is what was kept of a sandbox at one moment: its files. The data is in the
// checkpoint store; this is the record of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cp
// +kubebuilder:printcolumn:name="Sandbox",type=string,JSONPath=`.spec.sandboxID`
// +kubebuilder:printcolumn:name="Cause",type=string,JSONPath=`.spec.cause`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.status.pool`
// +kubebuilder:printcolumn:name="Bytes",type=integer,JSONPath=`.status.bytes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$')",message="a checkpoint's name has 1 to 57 of a-z, 0-9 and dash, and neither begins nor ends with a dash"
type Checkpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CheckpointSpec `json:"spec"`
	// +optional
	Status CheckpointStatus `json:"status,omitempty"`
}

// CheckpointSpec says of which sandbox what is to be kept, and for how long.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a checkpoint is immutable"
type CheckpointSpec struct {
	// SandboxID, SandboxUID and ClaimID name the sandbox and the claim whose pod the
	// files are read in: of another claim's pod nothing is kept.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$`
	SandboxID string `json:"sandboxID"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SandboxUID string `json:"sandboxUID"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClaimID string `json:"claimID"`
	// Contents says what is kept.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	Contents []CheckpointContent `json:"contents"`
	Cause    CheckpointCause     `json:"cause"`
	// Names are what users may call it beside its ID.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Names []string `json:"names,omitempty"`
	// KeepFor is how long it is kept once it has succeeded. Unset means until it is
	// deleted.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	KeepFor *metav1.Duration `json:"keepFor,omitempty"`
}

// CheckpointContent is a part of a sandbox that can be kept.
// +kubebuilder:validation:Enum=Filesystem
type CheckpointContent string

// CheckpointFilesystem is the files that were changed since the sandbox's container
// started.
const CheckpointFilesystem CheckpointContent = "Filesystem"

// CheckpointCause says what a checkpoint was made for.
// +kubebuilder:validation:Enum=Pause;Snapshot
type CheckpointCause string

// The causes of checkpoints.
const (
	// CheckpointPause: the sandbox was paused without its memory. It goes once it is
	// restored, or with its sandbox.
	CheckpointPause CheckpointCause = "Pause"
	// CheckpointSnapshot: a user asked for it, and others may be made of it.
	CheckpointSnapshot CheckpointCause = "Snapshot"
)

// CheckpointPhase is a checkpoint's state in one word; empty counts as Pending.
// +kubebuilder:validation:Enum=Pending;Creating;Succeeded;Failed;Terminating
type CheckpointPhase string

// The phases of checkpoints.
const (
	CheckpointPending     CheckpointPhase = "Pending"
	CheckpointCreating    CheckpointPhase = "Creating"
	CheckpointSucceeded   CheckpointPhase = "Succeeded"
	CheckpointFailed      CheckpointPhase = "Failed"
	CheckpointTerminating CheckpointPhase = "Terminating"
)

// CheckpointStatus is what became of it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.phase) || self.phase != 'Succeeded' || has(self.checkpointID) && has(self.digest) && has(self.pool)",message="a checkpoint that succeeded has checkpointID, digest and pool"
type CheckpointStatus struct {
	// +optional
	Phase CheckpointPhase `json:"phase,omitempty"`
	// Message is one sentence for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// CheckpointID is the name of this object, under which it can be restored. Set once it has
	// succeeded. The data in the store is named by the object's UID.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CheckpointID string `json:"checkpointID,omitempty"`
	// Pool is the pool of the pod that the files were read in. They are restored into a pod of
	// this pool alone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool,omitempty"`
	// Images are the image digests of the pod that the files were read in, by the names of its
	// containers. The files are restored into a pod with the same digests alone.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Images map[string]string `json:"images,omitempty"`
	// TemplateHash is the hash of the template of the pod that the files were read in. It is
	// recorded, and never compared.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TemplateHash string `json:"templateHash,omitempty"`
	// Bytes and Digest are of the data in the store. Digest is in hex the SHA-256 of the
	// SHA-256s of its parts of 1 MiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Bytes int64 `json:"bytes,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// CheckpointList is a list of Checkpoints.
//
// +kubebuilder:object:root=true
type CheckpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Checkpoint `json:"items"`
}
