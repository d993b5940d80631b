package uninstall

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// checkpoints lists all, or refuses for the snapshots among them. The others are a part of
// their sandboxes.
func (o *emptying) checkpoints(ctx context.Context) ([]v1alpha1.Checkpoint, error) {
	var all v1alpha1.CheckpointList
	if err := o.Client.List(ctx, &all); err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	snapshots := 0
	for i := range all.Items {
		if cp := &all.Items[i]; cp.Spec.Cause == v1alpha1.CheckpointSnapshot && cp.DeletionTimestamp == nil {
			snapshots++
		}
	}
	if snapshots > 0 && !o.DeleteCheckpoints && !o.changed {
		return nil, fmt.Errorf("%w (%d): delete them first (sandlane uninstall empty --delete-checkpoints), then uninstall again", ErrKept, snapshots)
	}
	if snapshots > 0 && !o.DeleteCheckpoints {
		o.late = append(o.late, "--delete-checkpoints")
	}
	return all.Items, nil
}

// deleteCheckpoints has the controller delete their data. Call it after endSandboxes: those of
// pauses stay as long as their sandboxes live.
func (o *emptying) deleteCheckpoints(ctx context.Context, all []v1alpha1.Checkpoint) error {
	for i := range all {
		cp := &all[i]
		allowed := !o.living[cp.Spec.SandboxID]
		if cp.Spec.Cause == v1alpha1.CheckpointSnapshot {
			allowed = o.DeleteCheckpoints
		}
		if cp.DeletionTimestamp != nil || !allowed {
			continue
		}
		o.changed = true
		err := o.Client.Delete(ctx, cp, client.Preconditions{UID: &cp.UID})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // the next look
		}
		if err != nil {
			return fmt.Errorf("delete checkpoint %s/%s: %w", cp.Namespace, cp.Name, err)
		}
		o.Progress(fmt.Sprintf("deleted the checkpoint %s/%s", cp.Namespace, cp.Name))
	}
	return nil
}
