package cache

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// NewSandboxPauseTask implements Provider.
func (c *Cache) NewSandboxPauseTask(ctx context.Context, s *v1alpha1.Sandbox) (*WaitTask[*v1alpha1.Sandbox], error) {
	return c.acquired(c.sandboxTask(ctx, s, ActionPause, pausedSince(s.Generation)))
}

// NewSandboxResumeTask implements Provider.
func (c *Cache) NewSandboxResumeTask(ctx context.Context, s *v1alpha1.Sandbox) (*WaitTask[*v1alpha1.Sandbox], error) {
	return c.acquired(c.sandboxTask(ctx, s, ActionResume, resumedSince(s.Generation)))
}

// NewSandboxWaitReadyTask implements Provider.
func (c *Cache) NewSandboxWaitReadyTask(ctx context.Context, s *v1alpha1.Sandbox) *WaitTask[*v1alpha1.Sandbox] {
	return c.sandboxTask(ctx, s, ActionReady, readySince(s.Generation))
}

// NewCheckpointTask implements Provider.
func (c *Cache) NewCheckpointTask(ctx context.Context, cp *v1alpha1.Checkpoint) *WaitTask[*v1alpha1.Checkpoint] {
	of := identity(cp, &v1alpha1.Checkpoint{})
	return newWaitTask(ctx, c, keyOf(KindCheckpoint, cp), waitKind[*v1alpha1.Checkpoint]{
		action:   ActionCheckpoint,
		informed: func(ctx context.Context) (*v1alpha1.Checkpoint, error) { return c.CheckpointUpdateFunc(ctx, of) },
		live: func(ctx context.Context) (*v1alpha1.Checkpoint, error) {
			o := &v1alpha1.Checkpoint{}
			return o, c.mgr.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(of), o)
		},
		reached: checkpointed, describe: describeCheckpoint,
	})
}

func (c *Cache) sandboxTask(ctx context.Context, s *v1alpha1.Sandbox, action WaitAction, reached func(*v1alpha1.Sandbox) (bool, error)) *WaitTask[*v1alpha1.Sandbox] {
	of := identity(s, &v1alpha1.Sandbox{})
	return newWaitTask(ctx, c, keyOf(KindSandbox, s), waitKind[*v1alpha1.Sandbox]{
		action:   action,
		informed: func(ctx context.Context) (*v1alpha1.Sandbox, error) { return c.SandboxUpdateFunc(ctx, of) },
		live: func(ctx context.Context) (*v1alpha1.Sandbox, error) {
			o := &v1alpha1.Sandbox{}
			return o, c.mgr.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(of), o)
		},
		reached: reached, describe: describeSandbox,
	})
}

func (c *Cache) acquired(t *WaitTask[*v1alpha1.Sandbox]) (*WaitTask[*v1alpha1.Sandbox], error) {
	if err := t.acquire(); err != nil {
		return nil, err
	}
	return t, nil
}

// identity sets the namespace and name of into to those of o, and returns it. A task does
// not keep its caller's object, because the caller may change it.
func identity[T client.Object](o, into T) T {
	into.SetNamespace(o.GetNamespace())
	into.SetName(o.GetName())
	return into
}
