// Package checkpoints ends Checkpoint objects, in the controller. Reconciler deletes the
// data of a Checkpoint that is being deleted, writes Failed for one that its gateway did not
// complete, and deletes those whose time is over. Sweeper deletes data that no Checkpoint
// names. Set the fields of each and call its SetupWithManager once.
//
// This package makes no checkpoints (gateway/pause/files does). docs/design/checkpoints.md has
// the states.
package checkpoints
