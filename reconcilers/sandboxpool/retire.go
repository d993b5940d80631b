package sandboxpool

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sync/errgroup"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
)

// When a pool is deleted:
//
// A pool has no finalizer of ours. A pod is drained if its pool is gone, is being deleted,
// or is another object of the same name: the sandbox of a claimed pod is ended, or, if its
// files are not restored yet, hibernates again; an unclaimed pod is deleted. That works with
// and without Kubernetes' garbage collection, in any order, and also while a namespace is
// deleted.

// protectedFor is how long an idle pod that was picked for deletion can still be
// claimed, where its pool does not say: a claim on its way has reserved it already.
const protectedFor = 2 * time.Second

func protectionOf(pool *v1alpha1.SandboxPool) time.Duration {
	if p := pool.Spec.ScaleDownProtection; p != nil {
		return p.Duration
	}
	return protectedFor
}

// retiring is what is done to an idle or warming pod that is too many.
type retiring int

const (
	// retireWait: its protection runs.
	retireWait retiring = iota
	// retireMark: begin its protection.
	retireMark
	// retireDelete: delete it, unless it was claimed since it was seen.
	retireDelete
)

// decideRetire is pure. A wait of 0 means that nothing is to be waited for.
func decideRetire(pod *corev1.Pod, protection time.Duration, now time.Time) (retiring, time.Duration) {
	if v1alpha1.PhaseOf(pod) != v1alpha1.PodIdle || protection == 0 {
		return retireDelete, 0
	}
	until, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationScaleDownProtected])
	switch left := until.Sub(now); {
	case err != nil, left > protection: // none, or of a clock that was set back
		return retireMark, protection
	case left > 0:
		return retireWait, left
	default:
		return retireDelete, 0
	}
}

// retire takes each victim one step further, and the mark from every other pod
// of the spare ones, so that one that is picked later is protected anew.
func (r *SandboxPoolReconciler) retire(ctx context.Context, protection time.Duration, spare, victims []*corev1.Pod, reason string) (time.Duration, error) {
	var (
		mu      sync.Mutex // guards what follows while the group runs
		recheck time.Duration
		errs    []error
		group   errgroup.Group
	)
	group.SetLimit(parallel)
	picked := make(map[*corev1.Pod]bool, len(victims))
	do := func(f func() (time.Duration, error)) {
		group.Go(func() error {
			wait, err := f()
			mu.Lock()
			defer mu.Unlock()
			recheck, errs = resync.Sooner(recheck, wait), append(errs, err)
			return nil
		})
	}
	for _, pod := range victims {
		picked[pod] = true
		do(func() (time.Duration, error) {
			switch what, wait := decideRetire(pod, protection, r.now()); what {
			case retireMark:
				return wait, r.protect(ctx, pod, r.now().Add(protection))
			case retireDelete:
				return 0, r.delete(ctx, pod, reason)
			default:
				return wait, nil
			}
		})
	}
	for _, pod := range spare {
		if _, marked := pod.Annotations[v1alpha1.AnnotationScaleDownProtected]; marked && !picked[pod] {
			do(func() (time.Duration, error) { return 0, r.protect(ctx, pod, time.Time{}) })
		}
	}
	_ = group.Wait() // the errors are in errs
	return recheck, errors.Join(errs...)
}

// protect marks an idle pod as picked for deletion; the zero time takes the mark
// away. A claimed pod is not touched.
func (r *SandboxPoolReconciler) protect(ctx context.Context, pod *corev1.Pod, until time.Time) error {
	mark := writes.Annotation(v1alpha1.AnnotationScaleDownProtected)
	p := writes.For(pod.UID).
		Test(writes.Phase, v1alpha1.PodIdle).
		Test(writes.Claim, nil).
		Test(pathDeleted, nil)
	had, marked := pod.Annotations[v1alpha1.AnnotationScaleDownProtected]
	if marked {
		p = p.Test(mark, had)
	} else {
		p = p.Test(mark, nil)
	}
	if until.IsZero() {
		p = p.Remove(mark)
	} else {
		p = p.Set(mark, until.UTC().Format(time.RFC3339Nano))
	}
	return r.patch(ctx, pod, "", p)
}
