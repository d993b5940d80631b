// Package binaries finds the programs of a Kubernetes control plane on this
// machine, one by one: in $KUBEBUILDER_ASSETS, in the cache folder, and where
// neither has one it is built from the module in hack/kube into the cache.
//
// It downloads nothing itself; `go build` does. The cache folder carries the
// Kubernetes version and a hash of the module, so that a second checkout finds
// what the first built and a changed module builds anew. Envoy is found by
// package envoy. Callers are local and cmd/sandlane (prepare, kubectl).
//
// Processes that build at the same time wait for each other. A binary appears
// in the cache by a rename, complete or not at all.
package binaries
