package checkpoints

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// indexKeptOf is the field index of the Checkpoints of pauses, by the name of the sandbox.
const indexKeptOf = "keptOf"

func keptOf(o client.Object) []string {
	if cp, ok := o.(*v1alpha1.Checkpoint); ok && cp.Spec.Cause == v1alpha1.CheckpointPause {
		return []string{cp.Spec.SandboxID}
	}
	return nil
}

// ofSandbox returns a request for each Checkpoint that a pause of the sandbox has made.
func (r *Reconciler) ofSandbox(ctx context.Context, s client.Object) (all []reconcile.Request) {
	var list v1alpha1.CheckpointList
	if err := r.List(ctx, &list, client.MatchingFields{indexKeptOf: s.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing the checkpoints of a sandbox's pauses", "sandbox", s.GetName()) // each is reconciled again within a minute
		return nil
	}
	for i := range list.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

// neededBy returns the sandbox that needs a checkpoint of a pause, nil if none does. A
// sandbox needs it if it names the checkpoint, or may be about to. neededBy returns nil only
// after a read from the API server.
func (r *Reconciler) neededBy(ctx context.Context, cp *v1alpha1.Checkpoint) (*v1alpha1.Sandbox, error) {
	for _, reader := range []client.Reader{r.Client, r.Live} {
		s := &v1alpha1.Sandbox{}
		err := reader.Get(ctx, client.ObjectKey{Name: cp.Spec.SandboxID}, s)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the sandbox of checkpoint %s: %w", cp.Name, err)
		}
		if needs(s, cp) {
			return s, nil
		}
	}
	return nil, nil
}

// endWithNamespace ends the sandbox that needs a checkpoint, if the checkpoint's namespace
// is being deleted: otherwise the checkpoint would keep the namespace for ever. It returns
// the sandbox if that still needs the checkpoint.
func (r *Reconciler) endWithNamespace(ctx context.Context, cp *v1alpha1.Checkpoint, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	ns := &corev1.Namespace{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: cp.Namespace}, ns); err != nil {
		return s, fmt.Errorf("reading the namespace of checkpoint %s: %w", cp.Name, err)
	}
	if ns.DeletionTimestamp == nil {
		return s, nil
	}
	err := writes.EndSandbox(ctx, r.Client, s.Name, v1alpha1.EndDeleted, "its namespace is being deleted",
		writes.OfUID(s.UID), writes.OfGeneration(s.Generation))
	if errors.Is(err, writes.ErrStale) || apierrors.IsNotFound(err) {
		return s, nil // the sandbox has changed since it was read: reconcile again
	}
	if err != nil {
		return s, err
	}
	return nil, nil
}

// needs reports whether the sandbox, as it was read, needs the checkpoint of a pause. While
// the sandbox is still to hibernate, with the same claim, a gateway's write that names the
// checkpoint may be on its way. That write tests the claim and spec.pauseOrder, so that
// it is refused once the sandbox was resumed. A Checkpoint in another namespace than the
// sandbox's is not its own, whatever it says.
func needs(s *v1alpha1.Sandbox, cp *v1alpha1.Checkpoint) bool {
	switch {
	case string(s.UID) != cp.Spec.SandboxUID, s.Spec.Namespace != cp.Namespace, s.Spec.End != nil:
		return false
	case s.Spec.Restore != nil:
		return s.Spec.Restore.Checkpoint == cp.Name
	}
	return s.Spec.Paused && s.Spec.PauseMode == v1alpha1.PauseHibernate &&
		s.Spec.Binding != nil && s.Spec.Binding.ClaimID == cp.Spec.ClaimID
}
