// Package uninstall takes an installation apart in an order in which nothing of it
// is stranded: pods and sandboxes have finalizers that only a running controller
// takes off, and a gateway's lease says that its routes may be in use. `sandlane
// uninstall` calls it, as the Helm chart's hooks before and after the release's
// objects are deleted. It deletes no pools and no API keys, which are the users'.
//
// # Empty, while controller and gateways run
//
//	a sandbox lives, and none may be ended    refused; nothing has been changed
//	a snapshot is kept, and none may be       the same
//	deleted
//	otherwise                                 in rounds, until nothing is left: end
//	                                          what may be ended, delete what has ended and
//	                                          the checkpoints that may be, give envs and
//	                                          pools no replicas; then wait for the controller
//	                                          to let pods, sandboxes and checkpoints go
//
// Gateways serve meanwhile, so a sandbox or a snapshot may be made between two looks: if it
// may not be ended or deleted, the rounds go on until it is gone, and say how. When the context
// ends, the error says what is left, and the Helm release stays.
//
// # Leases, after both Deployments are deleted
//
// A lease is deleted only when no pod of a gateway is left: one that still drains
// may have open requests, for which its lease vouches. Then the controller's lease and the
// certificates of the control plane are deleted and, with Options.Keys, the seed of tokens
// and the keys of /init.
package uninstall
