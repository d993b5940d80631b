// Package node is the node of the cluster on one machine: it runs pods as
// processes of this machine. It is a development node, no boundary against
// hostile code, and no kubelet: no registries, no init containers, no volumes
// but emptyDir, no service account tokens, no connections from pods to the
// machine or the internet.
//
// `sandlane node` (a process under `sandlane up`) calls Run; `up` and `down`
// call CanIsolate, PickSubnet, EnsureKubeletCredentials and Cleanup.
//
// # Parts and states
//
// Virtual-kubelet's PodController watches the pods bound to this node and
// calls the provider. The provider keeps one pod record per UID. A record has
// one goroutine (pod.run) that opens the network, runs a goroutine per
// container (container.run) and closes the network when all have returned:
//
//	opening ─▶ running ─▶ dead ─▶ (deleted in the API) ─▶ forgotten
//	   └─ delete, node stop ──▲
//
// A container's goroutine alone starts and stops its process, and writes its
// state under the pod's mutex. Everybody else asks: a changed image wakes the
// goroutine, a deletion cancels the pod's stop context, the end of the grace
// period its kill context.
//
// # What happens when a step fails
//
// A network that cannot be opened, an image that is not known and a program
// that does not start are retried with back-off and shown in the pod's
// status. A status write is retried until it succeeds or the pod is gone. When
// the node is killed the kernel kills every pod process with it (parent-death
// signal), and its network namespaces, held by descriptors only, vanish; what
// stays (bridge, routes, cgroups, folders) carries the hash of the state
// folder and is removed by Cleanup. From the first node to the last the subnet
// is guarded: an address without a pod is unreachable, and never leads out of
// the machine, also between a node's death and its successor's bridge. A restarted node starts the containers
// again in the same pods on the same addresses, with one more restart each, as
// a kubelet does after a reboot; pods whose policy forbids a restart fail.
//
// # Rules that the rest of Sandlane relies on
//
//   - Status writes are patches of /status that carry the UID and nothing else
//     of the metadata: a label written by a claim is never put back.
//   - A pod object is deleted by this node only when its processes are dead.
//   - An address is given out again only after the processes that could answer
//     on it are dead, its namespace is closed, and the machine's connections to it
//     are reset (sever).
//   - A pool pod can be reached from the machine only while its phase label is
//     idle, starting or running; probes run inside its namespace.
package node
