package cache

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Provider is what a Cache offers. Its methods are safe for concurrent use. What is not
// there is told by an error that apierrors.IsNotFound knows; ErrStopped after Stop.
type Provider interface {
	// GetClaimedSandbox returns the sandbox of an ID that has not ended, and is bound to a
	// pod or paused.
	GetClaimedSandbox(ctx context.Context, opts GetClaimedSandboxOptions) (*v1alpha1.Sandbox, error)
	// GetCheckpoint returns the checkpoint whose data has this ID, whatever its phase.
	GetCheckpoint(ctx context.Context, opts GetCheckpointOptions) (*v1alpha1.Checkpoint, error)
	// PickSandboxPool returns the pool that a template's name stands for: a member of the
	// env of that name, one with idle pods before others; else the pool of that name; else
	// the oldest pool with that alias. Pools that are being deleted or drained are none.
	PickSandboxPool(ctx context.Context, opts PickSandboxPoolOptions) (*v1alpha1.SandboxPool, error)
	// ListSandboxPools returns the pools of a namespace, by name.
	ListSandboxPools(ctx context.Context, opts ListSandboxPoolsOptions) ([]*v1alpha1.SandboxPool, error)
	// ListSandboxes returns the sandboxes of a namespace, ended ones too, by ID.
	ListSandboxes(ctx context.Context, opts ListSandboxesOptions) ([]*v1alpha1.Sandbox, error)
	// ListCheckpoints returns the checkpoints of a namespace, by name.
	ListCheckpoints(ctx context.Context, opts ListCheckpointsOptions) ([]*v1alpha1.Checkpoint, error)
	// ListSandboxesInPool returns the sandboxes of a pool, ended ones too, by ID.
	ListSandboxesInPool(ctx context.Context, opts ListSandboxesInPoolOptions) ([]*v1alpha1.Sandbox, error)

	// NewSandboxPauseTask holds the pause of a sandbox, before the caller writes it: from
	// now on ErrWaitTaskConflict keeps other actions on it away, until the task was waited
	// for or is released, or ctx ends. s is what the caller makes its write from: an older
	// state does not end the wait.
	NewSandboxPauseTask(ctx context.Context, s *v1alpha1.Sandbox) (*WaitTask[*v1alpha1.Sandbox], error)
	// NewSandboxResumeTask is NewSandboxPauseTask for a resume.
	NewSandboxResumeTask(ctx context.Context, s *v1alpha1.Sandbox) (*WaitTask[*v1alpha1.Sandbox], error)
	// NewSandboxWaitReadyTask is for waiting until a sandbox runs and can be reached, as of
	// the generation of s or a later one. It holds nothing before its Wait.
	NewSandboxWaitReadyTask(ctx context.Context, s *v1alpha1.Sandbox) *WaitTask[*v1alpha1.Sandbox]
	// NewCheckpointTask is for waiting until a checkpoint has succeeded, with its ID. It
	// holds nothing before its Wait.
	NewCheckpointTask(ctx context.Context, cp *v1alpha1.Checkpoint) *WaitTask[*v1alpha1.Checkpoint]

	// Run starts the manager, if it is owned, and returns nil once the informers have
	// everything. The Cache runs until ctx ends. Call once.
	Run(ctx context.Context) error
	// Stop ends it and, if that is owned, its manager, for whose end it waits at most
	// until ctx ends. It may be called several times.
	Stop(ctx context.Context)

	// GetClient returns a client that reads from the informers and writes to the API server.
	// A kind that BuildCacheConfig does not name cannot be read by that of an owned
	// manager, unless the program has made an informer of it (GetCache().GetInformer).
	GetClient() client.Client
	// GetAPIReader returns a reader of the API server.
	GetAPIReader() client.Reader
}

// GetClaimedSandboxOptions name a sandbox.
type GetClaimedSandboxOptions struct{ Namespace, SandboxID string }

// GetCheckpointOptions name a checkpoint by the ID of its data.
type GetCheckpointOptions struct{ Namespace, CheckpointID string }

// PickSandboxPoolOptions name what a sandbox is to be made from, as users do: an env, a
// pool, or an alias of one.
type PickSandboxPoolOptions struct{ Namespace, Name string }

// ListSandboxPoolsOptions say which pools.
type ListSandboxPoolsOptions struct{ Namespace string }

// ListSandboxesOptions say which sandboxes: of a namespace and, unless User is empty, of
// those whose owner annotation has this key ID.
type ListSandboxesOptions struct{ Namespace, User string }

// ListCheckpointsOptions say which checkpoints; see ListSandboxesOptions.
type ListCheckpointsOptions struct{ Namespace, User string }

// ListSandboxesInPoolOptions name a pool.
type ListSandboxesInPoolOptions struct{ Namespace, Pool string }

var _ Provider = (*Cache)(nil)
