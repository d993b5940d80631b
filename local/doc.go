// Package local is a cluster on one machine: `sandlane up`, `down`, `status`
// and `logs`. It starts the real parts — etcd, kube-apiserver, a reduced
// kube-controller-manager, controller, node, gateway, Envoy — as child
// processes (local/supervise), fills the cluster with what the demo needs, and
// takes everything away again.
//
// It is for development and tests, no way to run Sandlane for others. It holds
// no logic of the product: gateway, controller and node are subcommands of the
// same binary that run on any cluster. cmd/sandlane is its only caller.
//
// # State
//
// Everything lies in one state folder; sockets move to a short folder in /tmp
// when the state folder's path is too long for them. A lock on <state>/up.lock
// says that an `up` runs, and holds its PID. Only the holder of the lock writes
// in the folder. What a killed `up` left is removed by the next holder, be it
// `up` or `down`. The cluster's content lives as long as its `up`: each begins
// with an empty etcd, new certificates and a new API key. Logs stay.
//
// # Several gateways
//
// Options.Gateways makes pairs of Envoy and gateway on one cluster with one
// controller: gateway and envoy, gateway-2 and envoy-2, … What up.json says at
// its top is the first one's; all stand in its list.
//
// # TLS
//
// With Options.TLS all Envoys show one certificate, for Options.Domain. It and its
// key are new with each `up` and go with it (cluster/pki); its 397 days are longer
// than any `up` lives. The authority that signs it stays, so that what people told
// their programs to trust is good for the next `up` too: <state>/tls/<domain> has it
// (local/authority says in which states, and what is refused), and
// <state>/tls/node/<domain>.cjs, written by each `up`, lets Node find the domain. An
// authority that cannot be used ends `up` before anything is started.
//
// # What happens when a step fails
//
// `up` checks what it can before it starts anything; a step that fails
// afterwards stops what was started, in order, and leaves nothing but logs. A
// process that dies later is started again and up.json is rewritten.
package local
