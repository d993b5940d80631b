package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxTemplate is a pod template that pools share.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=sbt
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SandboxTemplateSpec `json:"spec"`
}

// SandboxTemplateSpec describes the pods of a pool.
type SandboxTemplateSpec struct {
	// Template is the pod to run. hostNetwork, hostPID, hostIPC, hostPort and
	// shareProcessNamespace are refused: each would let a sandbox reach its
	// neighbours.
	Template corev1.PodTemplateSpec `json:"template"`
	// IdleImage is what the first container runs until it is claimed. Empty
	// means the template's own image.
	// +optional
	IdleImage string `json:"idleImage,omitempty"`
	// Runtimes lists the images a sandbox may ask for, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Runtimes []Runtime `json:"runtimes,omitempty"`
	// StartupTimeout and IdleTimeout are the defaults of pools that set none.
	// +optional
	StartupTimeout *metav1.Duration `json:"startupTimeout,omitempty"`
	// +optional
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// Version is free text for people; it has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
}

// Runtime is an image that a sandbox may ask for by name.
type Runtime struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
}

// SandboxTemplateList is a list of SandboxTemplates.
//
// +kubebuilder:object:root=true
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxTemplate `json:"items"`
}
