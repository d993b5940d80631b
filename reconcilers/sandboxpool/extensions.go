package sandboxpool

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The interfaces of this file are for programs that embed the reconcilers. Nothing in
// this repository implements them: `sandlane controller` leaves their fields nil.

// DigestResolver resolves an image name to digests. It is asked only when a
// pod's status names an image otherwise than the pod's spec, at most once a
// second for a container, and must honour ctx.
type DigestResolver interface {
	// ResolveDigests returns all digests ("sha256:…") by which a container
	// runtime may report the image now: those of the manifest list, of the
	// platform's manifest, and of the configuration.
	ResolveDigests(ctx context.Context, image string) ([]string, error)
}

// SandboxReadyHook is called for each pod that turned from starting to running, in a
// goroutine of its own, at most readyHookTime long; it must honour ctx, for a manager that
// stops waits for it. It may be called again for the same claim, or not at all if the
// controller stops or dies.
type SandboxReadyHook interface {
	OnSandboxReady(ctx context.Context, pod *corev1.Pod)
}

// IdleNotifier is called for what this process did, for other parts that run in it. Both
// calls must return at once.
type IdleNotifier interface {
	// NotifyIdleAvailable: a pod of the pool has turned idle.
	NotifyIdleAvailable(namespace, pool string)
	// OnSandboxReleased: the sandbox's pod was let go, or is warming again.
	OnSandboxReleased(ctx context.Context, sandboxID string)
}

// PluginManager judges a pool before any pod is made for it. Both calls may
// change pool's labels, annotations and spec, which is written back, or refuse it
// with an error, whose text stands in the pool's condition Degraded: then no pod
// is created or replaced until the pool is changed; claimed ones stay. They must
// be quick and come to the same result each time: they may be asked again.
type PluginManager interface {
	// PreCreatePool is asked about a pool that this controller has not worked on.
	PreCreatePool(ctx context.Context, pool *v1alpha1.SandboxPool) error
	// PreUpdatePool is asked about a pool whose spec has changed. old is what was
	// let through before, nil if that was not by this process.
	PreUpdatePool(ctx context.Context, old, pool *v1alpha1.SandboxPool) error
}
