package checkpoints

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// needed reports whether a sandbox needs what a pause has kept of it: it names the
// checkpoint, or may be about to. Only a live read says that it does not.
func (r *Reconciler) needed(ctx context.Context, cp *v1alpha1.Checkpoint) (bool, error) {
	for _, reader := range []client.Reader{r.Client, r.Live} {
		s := &v1alpha1.Sandbox{}
		err := reader.Get(ctx, client.ObjectKey{Name: cp.Spec.SandboxID}, s)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading the sandbox of checkpoint %s: %w", cp.Name, err)
		}
		if needs(s, cp) {
			return true, nil
		}
	}
	return false, nil
}

// needs reports whether the sandbox needs what a pause has kept, as it was read. While it
// is still to hibernate, with the same claim, the write that names the checkpoint may be
// on its way; that write tests the sandbox's generation, so that after any other change
// it comes too late.
func needs(s *v1alpha1.Sandbox, cp *v1alpha1.Checkpoint) bool {
	switch {
	case string(s.UID) != cp.Spec.SandboxUID, s.Spec.End != nil:
		return false
	case s.Spec.Restore != nil:
		return s.Spec.Restore.Checkpoint == cp.Name
	}
	return s.Spec.Paused && s.Spec.PauseMode == v1alpha1.PauseHibernate &&
		s.Spec.Binding != nil && s.Spec.Binding.ClaimID == cp.Spec.ClaimID
}
