// Package files keeps files of sandboxes and restores them, for one gateway: it makes
// the Checkpoint object, has the pod's sandboxd read the files (package sandboxdclient), and puts
// them into the checkpoint store. Snapshots is the backend of the REST API's snapshots; a
// Restorer restores one into the pod of a sandbox that the REST API creates. Hibernator does
// both for sandboxes that hibernate.
//
// This package deletes no data: the controller does (reconcilers/checkpoints), also the data
// of Checkpoints which a gateway left unfinished. docs/design/checkpoints.md has the states
// and what happens when a step fails.
package files
