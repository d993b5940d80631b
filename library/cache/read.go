package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// GetClaimedSandbox implements Provider.
func (c *Cache) GetClaimedSandbox(ctx context.Context, o GetClaimedSandboxOptions) (*v1alpha1.Sandbox, error) {
	found, err := c.sandboxesBy(ctx, o.Namespace, IndexClaimedSandboxID, o.SandboxID)
	if err != nil || len(found) == 0 {
		return nil, notFound(err, "sandboxes", o.SandboxID)
	}
	return found[0], nil
}

// ListSandboxes implements Provider.
func (c *Cache) ListSandboxes(ctx context.Context, o ListSandboxesOptions) ([]*v1alpha1.Sandbox, error) {
	if o.User == "" {
		return c.sandboxesBy(ctx, o.Namespace, "", "")
	}
	return c.sandboxesBy(ctx, o.Namespace, IndexUser, o.User)
}

// ListSandboxesInPool implements Provider.
func (c *Cache) ListSandboxesInPool(ctx context.Context, o ListSandboxesInPoolOptions) ([]*v1alpha1.Sandbox, error) {
	return c.sandboxesBy(ctx, o.Namespace, IndexSandboxPool, o.Pool)
}

// sandboxesBy lists the sandboxes of a namespace by ID; with an index only those that have
// the value there. Sandboxes are cluster-scoped, so that their namespace is an index too.
func (c *Cache) sandboxesBy(ctx context.Context, namespace, index, value string) ([]*v1alpha1.Sandbox, error) {
	if namespace == "" {
		return nil, fmt.Errorf("listing sandboxes: %w", ErrNamespaceNeeded)
	}
	selector := fields.OneTermEqualSelector(IndexNamespace, namespace)
	if index != "" { // first, because the informer looks up by the first field, and this one selects fewer sandboxes
		selector = fields.AndSelectors(fields.OneTermEqualSelector(index, value), selector)
	}
	var list v1alpha1.SandboxList
	if err := c.list(ctx, &list, client.MatchingFieldsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	return sorted(list.Items), nil
}

// GetCheckpoint implements Provider.
func (c *Cache) GetCheckpoint(ctx context.Context, o GetCheckpointOptions) (*v1alpha1.Checkpoint, error) {
	found, err := c.checkpointsBy(ctx, o.Namespace, client.MatchingFields{IndexCheckpointID: o.CheckpointID})
	if err != nil || len(found) == 0 {
		return nil, notFound(err, "checkpoints", o.CheckpointID)
	}
	return found[0], nil
}

// ListCheckpoints implements Provider.
func (c *Cache) ListCheckpoints(ctx context.Context, o ListCheckpointsOptions) ([]*v1alpha1.Checkpoint, error) {
	if o.User == "" {
		return c.checkpointsBy(ctx, o.Namespace)
	}
	return c.checkpointsBy(ctx, o.Namespace, client.MatchingFields{IndexUser: o.User})
}

func (c *Cache) checkpointsBy(ctx context.Context, namespace string, opts ...client.ListOption) ([]*v1alpha1.Checkpoint, error) {
	if namespace == "" {
		return nil, fmt.Errorf("listing checkpoints: %w", ErrNamespaceNeeded)
	}
	var list v1alpha1.CheckpointList
	if err := c.list(ctx, &list, append(opts, client.InNamespace(namespace))...); err != nil {
		return nil, err
	}
	return sorted(list.Items), nil
}

// ListSandboxPools implements Provider.
func (c *Cache) ListSandboxPools(ctx context.Context, o ListSandboxPoolsOptions) ([]*v1alpha1.SandboxPool, error) {
	return c.poolsBy(ctx, o.Namespace)
}

// PickSandboxPool implements Provider.
func (c *Cache) PickSandboxPool(ctx context.Context, o PickSandboxPoolOptions) (*v1alpha1.SandboxPool, error) {
	name := strings.ToLower(o.Name)
	found, err := c.poolsBy(ctx, o.Namespace, client.MatchingFields{IndexTemplateID: name})
	found = slices.DeleteFunc(found, func(p *v1alpha1.SandboxPool) bool {
		return p.DeletionTimestamp != nil || p.Annotations[v1alpha1.AnnotationDraining] != ""
	})
	if err != nil || len(found) == 0 {
		return nil, notFound(err, "sandboxpools", o.Name)
	}
	return slices.MinFunc(found, func(a, b *v1alpha1.SandboxPool) int {
		return cmp.Or(cmp.Compare(poolRank(a, name), poolRank(b, name)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}), nil
}

// poolRank ranks the pools that a name may stand for; the least rank is preferred.
func poolRank(p *v1alpha1.SandboxPool, name string) int {
	switch {
	case p.Labels[v1alpha1.LabelEnv] == name && p.Status.Idle > 0:
		return 0
	case p.Labels[v1alpha1.LabelEnv] == name:
		return 1
	case p.Name == name:
		return 2
	}
	return 3
}

func (c *Cache) poolsBy(ctx context.Context, namespace string, opts ...client.ListOption) ([]*v1alpha1.SandboxPool, error) {
	if namespace == "" {
		return nil, fmt.Errorf("listing pools: %w", ErrNamespaceNeeded)
	}
	var list v1alpha1.SandboxPoolList
	if err := c.list(ctx, &list, append(opts, client.InNamespace(namespace))...); err != nil {
		return nil, err
	}
	return sorted(list.Items), nil
}

// list lists from the informers, even if the manager's client does not read from them.
func (c *Cache) list(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := c.mgr.GetCache().List(ctx, list, opts...); err != nil {
		return fmt.Errorf("listing from the informer: %w", err)
	}
	return nil
}

// SandboxUpdateFunc returns the newest state of a sandbox that the informer has. Waiting
// tasks call it.
func (c *Cache) SandboxUpdateFunc(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	o := &v1alpha1.Sandbox{}
	return o, c.update(ctx, s, o)
}

// CheckpointUpdateFunc is SandboxUpdateFunc for a checkpoint.
func (c *Cache) CheckpointUpdateFunc(ctx context.Context, cp *v1alpha1.Checkpoint) (*v1alpha1.Checkpoint, error) {
	o := &v1alpha1.Checkpoint{}
	return o, c.update(ctx, cp, o)
}

// update reads the object of was's name into o, from the informer.
func (c *Cache) update(ctx context.Context, was, o client.Object) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.mgr.GetCache().Get(ctx, client.ObjectKeyFromObject(was), o)
}

// sorted returns pointers to the items, which are the caller's own, in order of name.
func sorted[T any, P interface {
	*T
	client.Object
}](items []T) []P {
	all := make([]P, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	slices.SortFunc(all, func(a, b P) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// notFound returns err, or a NotFound error if err is nil.
func notFound(err error, resource, name string) error {
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name)
}
