// Package v1alpha1 holds Sandlane's Kubernetes objects (group sandlane.dev):
// SandboxTemplate, SandboxPool, SandboxEnv, Sandbox and Checkpoint, and the labels,
// annotations, finalizers and phases that the parts agree on.
//
// It is types, constants and functions of these types alone: no client. It imports none of
// our packages, only Kubernetes' types.
//
// Validation lives in the CRD schema (markers and CEL rules on the types), so
// that the API server refuses nonsense, whichever client writes it.
//
// +kubebuilder:object:generate=true
// +groupName=sandlane.dev
package v1alpha1
