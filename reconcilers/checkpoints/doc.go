// Package checkpoints ends Checkpoint objects. Reconciler deletes the data of an object that
// is deleted, writes Failed for one that its gateway did not finish, and deletes those whose
// time is over. Sweeper deletes data that no object names.
//
// It makes no checkpoints (gateway/snapshots does). docs/design/checkpoints.md has the
// states.
package checkpoints
