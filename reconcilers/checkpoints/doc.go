// Package checkpoints ends Checkpoint objects: Reconciler deletes the data of one that is
// deleted, judges what a gateway left half done, and deletes what has been kept for long
// enough; Sweeper deletes data that no object names.
//
// It makes no checkpoints (gateway/snapshots does). docs/design/checkpoints.md has the
// states.
package checkpoints
