// Package node boots one real Kubernetes node for tests: kube-apiserver,
// scheduler, controller manager, kube-proxy, kubelet, containerd and runc, in
// namespaces of their own on this machine. Call Helper first in TestMain, and Start in a
// test; test/helm does so for the Helm chart. It needs root, and the programs that
// hack/node/build.sh puts into a folder.
//
// The node is not a cluster for users: etcd syncs nothing, there is no cluster DNS but what
// a test installs, no second node, and nothing enforces NetworkPolicies.
//
// # Processes
//
// Start runs the test binary again in two roles, in which Helper does not return.
//
//	test ──stdin──▶ keeper ──clones──▶ init (PID 1 of the node) ──▶ etcd, kubelet, …
//
//	keeper  has a session of its own, so that Ctrl-C does not reach it. When its
//	        standard input ends (Stop closes it; the kernel does so when the test is
//	        killed) it kills init, waits until the node's control groups are empty,
//	        removes them and the state folder, and ends.
//	init    makes mounts and network, starts the programs, restarts programs that end,
//	        and reaps orphans. The kernel kills init when the keeper dies, and all
//	        processes of the node when init dies.
//
// A node is booting, then running, then gone. Start returns once it runs. A failure while
// it boots ends the node, and the error has the last log lines of its programs.
//
// # What a killed test may leave behind
//
//	test killed -9, Ctrl-C     nothing: the keeper removes all
//	keeper killed -9           no process; control groups and the state folder,
//	                           which the next Start removes
//	machine rebooted           the state folder, below the folder of temporary files
//
// The node has mounts of its own for everything that it would change on the machine: /run,
// /var/lib, /var/log, and the kernel's settings that a kubelet writes.
package node
