package cache

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Provider has the methods of a Cache, which are safe for concurrent use. For an object that
// does not exist they return an error for which apierrors.IsNotFound is true; after Stop they
// return ErrStopped.
type Provider interface {
	// GetClaimedSandbox returns the sandbox of an ID that has not ended, and is bound to a
	// pod or paused.
	GetClaimedSandbox(ctx context.Context, opts GetClaimedSandboxOptions) (*v1alpha1.Sandbox, error)
	// GetCheckpoint returns the checkpoint whose data has this ID, whatever its phase.
	GetCheckpoint(ctx context.Context, opts GetCheckpointOptions) (*v1alpha1.Checkpoint, error)
	// PickSandboxPool returns the pool that a template's name stands for: a member of the
	// env of that name, one with idle pods before others; else the pool of that name; else
	// the oldest pool with that alias. It never returns a pool that is being deleted or
	// drained.
	PickSandboxPool(ctx context.Context, opts PickSandboxPoolOptions) (*v1alpha1.SandboxPool, error)
	// ListSandboxPools returns the pools of a namespace, by name.
	ListSandboxPools(ctx context.Context, opts ListSandboxPoolsOptions) ([]*v1alpha1.SandboxPool, error)
	// ListSandboxes returns the sandboxes of a namespace, ended ones too, by ID.
	ListSandboxes(ctx context.Context, opts ListSandboxesOptions) ([]*v1alpha1.Sandbox, error)
	// ListCheckpoints returns the checkpoints of a namespace, by name.
	ListCheckpoints(ctx context.Context, opts ListCheckpointsOptions) ([]*v1alpha1.Checkpoint, error)
	// ListSandboxesInPool returns the sandboxes of a pool, ended ones too, by ID.
	ListSandboxesInPool(ctx context.Context, opts ListSandboxesInPoolOptions) ([]*v1alpha1.Sandbox, error)

	// NewSandboxPauseTask makes a task that waits until the sandbox is paused. Call it
	// before you write the pause: from now on tasks for other actions on the sandbox fail
	// with ErrWaitTaskConflict, until Wait returns, Release is called, or ctx ends. s is the
	// sandbox from which you make your write: an older state does not end the wait.
	NewSandboxPauseTask(ctx context.Context, s *v1alpha1.Sandbox) (*WaitTask[*v1alpha1.Sandbox], error)
	// NewSandboxResumeTask is NewSandboxPauseTask for a resume.
	NewSandboxResumeTask(ctx context.Context, s *v1alpha1.Sandbox) (*WaitTask[*v1alpha1.Sandbox], error)
	// NewSandboxWaitReadyTask makes a task that waits until a sandbox runs and has an
	// address, at the generation of s or a later one. It excludes no other task before its
	// Wait.
	NewSandboxWaitReadyTask(ctx context.Context, s *v1alpha1.Sandbox) *WaitTask[*v1alpha1.Sandbox]
	// NewCheckpointTask makes a task that waits until a checkpoint has succeeded and has its
	// ID. It excludes no other task before its Wait.
	NewCheckpointTask(ctx context.Context, cp *v1alpha1.Checkpoint) *WaitTask[*v1alpha1.Checkpoint]

	// Run starts an owned manager, and returns nil once the informers have listed all
	// objects. The Cache runs until ctx ends. Call it once.
	Run(ctx context.Context) error
	// Stop stops the Cache and an owned manager, and waits for the manager's end until ctx
	// ends. It may be called several times.
	Stop(ctx context.Context)

	// GetClient returns a client that reads from the informers and writes to the API server.
	// With an owned manager it cannot read a kind that BuildCacheConfig does not name, unless
	// the program has made an informer for it (GetCache().GetInformer).
	GetClient() client.Client
	// GetAPIReader returns a reader of the API server.
	GetAPIReader() client.Reader
}

// GetClaimedSandboxOptions name a sandbox.
type GetClaimedSandboxOptions struct{ Namespace, SandboxID string }

// GetCheckpointOptions name a checkpoint by the ID of its data.
type GetCheckpointOptions struct{ Namespace, CheckpointID string }

// PickSandboxPoolOptions name the env, pool or alias from which a sandbox is to be made.
type PickSandboxPoolOptions struct{ Namespace, Name string }

// ListSandboxPoolsOptions name the namespace of the pools.
type ListSandboxPoolsOptions struct{ Namespace string }

// ListSandboxesOptions select the sandboxes of a namespace and, unless User is empty, of
// those the ones whose owner annotation is this ID of an API key.
type ListSandboxesOptions struct{ Namespace, User string }

// ListCheckpointsOptions select checkpoints as ListSandboxesOptions select sandboxes.
type ListCheckpointsOptions struct{ Namespace, User string }

// ListSandboxesInPoolOptions name a pool.
type ListSandboxesInPoolOptions struct{ Namespace, Pool string }

var _ Provider = (*Cache)(nil)
