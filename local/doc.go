// Package local is a cluster on one machine: `sandlane up`, `down`, `status`
// and `logs`. It starts the real parts — etcd, kube-apiserver, a reduced
// kube-controller-manager, controller, node, gateway, Envoy — as child
// processes (local/supervise), fills the cluster with what the demo needs, and
// takes everything away again. Call [Up] with [Options], or [Detach] to have it go on in the
// background; then [Status], [Logs] and [Down] with its state folder.
//
// It is for development and tests, no way to run Sandlane for others. It holds
// no logic of the product: gateway, controller and node are subcommands of the
// same binary that run on any cluster. cmd/sandlane is its only caller.
//
// up.go says what happens when a step fails, state.go what lies in the state folder and
// which process may write there, tls.go how certificates are kept.
package local
