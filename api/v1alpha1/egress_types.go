package v1alpha1

import "slices"

// SandboxEgress says which hosts a sandbox may connect to by name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.allowNames) || has(self.denyAll) && self.denyAll",message="allowNames needs denyAll: all names are allowed without it"
type SandboxEgress struct {
	// DenyAll denies all names but those of AllowNames.
	// +optional
	DenyAll bool `json:"denyAll,omitempty"`
	// AllowNames are names of hosts, wildcards such as *.example.com, or *.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=255
	AllowNames []string `json:"allowNames,omitempty"`
	// DenyBlocks are blocks of addresses that names may not lead to, but for those that
	// AllowNames has, and for addresses of AllowBlocks.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=49
	DenyBlocks []string `json:"denyBlocks,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=49
	AllowBlocks []string `json:"allowBlocks,omitempty"`
	// Rules say which headers requests to a host get, without what is secret of their
	// values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Rules []EgressRule `json:"rules,omitempty"`
	// Sealed has the rules with all of their values, for egress processes alone.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Sealed []byte `json:"sealed,omitempty"`
}

// FirstRequestEgress says which hosts a sandbox may connect to that a first request makes: by
// name, those of AllowNames alone.
type FirstRequestEgress struct {
	// AllowNames are names of hosts, wildcards such as *.example.com, or *.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^(\*|(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z]([a-z0-9_-]{0,61}[a-z0-9_])?)$`
	AllowNames []string `json:"allowNames,omitempty"`
}

// Sandbox returns the same as a sandbox has it; nil of nil.
func (e *FirstRequestEgress) Sandbox() *SandboxEgress {
	if e == nil {
		return nil
	}
	return &SandboxEgress{DenyAll: true, AllowNames: slices.Clone(e.AllowNames)}
}

// ClaimRules returns the value of LabelRules that a pod gets as it is claimed; empty is none.
func ClaimRules(firstRequest bool, e *SandboxEgress) string {
	if firstRequest && e != nil && e.DenyAll {
		return RulesNames
	}
	return ""
}

// EgressRule is what requests to a host get.
type EgressRule struct {
	// Host is a name, or a wildcard such as *.example.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Host string `json:"host"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Headers []EgressHeader `json:"headers,omitempty"`
}

// EgressHeader is a header that a rule sets.
type EgressHeader struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// Shown is the value with placeholders as they were written, and *** for the rest.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Shown string `json:"shown,omitempty"`
}
