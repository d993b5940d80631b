package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxSecret is a value that egress puts into requests of the namespace's sandboxes, where
// a rule names it. Only egress processes can read the value.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=sbsec
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Version",type=integer,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^secret-[0-9a-f]{40}$')",message="the name of a SandboxSecret is made from spec.name"
type SandboxSecret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SandboxSecretSpec `json:"spec"`
}

// SandboxSecretSpec is a secret.
//
// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
type SandboxSecretSpec struct {
	// Name is what rules call it.
	// +kubebuilder:validation:Pattern=`^[a-z0-9_-]{1,128}$`
	Name string `json:"name"`
	// Version counts the values that it has had.
	// +kubebuilder:validation:Minimum=1
	Version int64 `json:"version"`
	// Metadata is the user's own.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Metadata map[string]string `json:"metadata,omitempty"`
	// Sealed is the value, for egress processes alone.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Sealed []byte `json:"sealed"`
	// UpdatedAt is when the value was written.
	UpdatedAt metav1.MicroTime `json:"updatedAt"`
}

// SandboxSecretList is a list of SandboxSecrets.
//
// +kubebuilder:object:root=true
type SandboxSecretList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxSecret `json:"items"`
}

// SecretObject returns the name of the SandboxSecret that has a secret: the secret's own may
// have characters that no object's has.
func SecretObject(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "secret-" + hex.EncodeToString(sum[:20])
}
