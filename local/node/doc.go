// Package node is the node of the cluster on one machine: it runs pods as
// processes of this machine. It is a development node, no boundary against
// hostile code, and no kubelet: no sidecars,
// no volumes of a disk of their own, no service account tokens, no connections from pods to the
// machine or the internet.
//
// `sandlane node` (a process under `sandlane up`) calls Run; `up` and `down`
// call CanIsolate, EnsureKubeletCredentials and Cleanup.
//
// Virtual-kubelet's PodController watches the pods bound to this node and calls the
// provider, which keeps one pod record per UID: its states, and what happens when a
// step fails, stand in pod.go.
//
// The folders below tell one story each: network, rootfs and volumes, environment, process, status.
//
// # Rules that the rest of Sandlane relies on
//
//   - Status writes are patches of /status that carry the UID and nothing else
//     of the metadata: a label written by a claim is never put back.
//   - A pod object is deleted by this node only when its processes are dead.
//   - An address is given out again only after the processes that could answer
//     on it are dead, its namespace is closed, and the machine's connections to it
//     are reset (sever).
//   - With full isolation a pool pod can be reached from the machine only while its phase
//     label is idle, starting or running; probes run inside its namespace.
package node
