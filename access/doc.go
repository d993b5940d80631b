// Package access says what Sandlane's processes may do at the API server: one
// list of rights, and the Kubernetes objects that grant exactly these and no
// more. Objects returns them for a client to create, and Bindings what each namespace with
// pools adds; YAML and Markdown are for people to read; Rights is the list of one [Process].
//
// docs/rights.yaml is rendered from it, `sandlane up` installs the same objects, and tests
// compare the list with what the processes ask for.
//
// It is not about users of Sandlane: API keys are package credentials.
//
// RBAC grants verbs on kinds. What it cannot say, the admission policies of
// admission.go add for the gateway, which answers strangers and is therefore the
// process that an attacker would take over: which fields of a pod it may change,
// that it changes nothing of a pool but two annotations, which network policies
// are its own; and for both processes that they begin things in namespaces with the label
// v1alpha1.LabelPools alone. They deny with 403, so that a refused write is never taken for one
// whose JSON Patch test failed (422) and sent to the next pod. They need
// Kubernetes 1.30.
//
// A right that code begins to need is added to the list in the same change, one
// that it needs no more is taken out: the test that reads the audit log of a whole
// cluster (test/e2e) fails for either.
package access
