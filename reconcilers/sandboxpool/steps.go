package sandboxpool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// parallel bounds the writes that one pool has on their way at once.
const parallel = 8

// step moves each pod by at most one step. It returns when time alone may make
// the next one possible, and which pods have waited for their address for too
// long. One pod's failed write does not stop the others. waited is from firstSeen;
// lacking: the pool has less stock than it should.
func (r *SandboxPoolReconciler) step(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pods []openPod, waited map[types.UID]time.Duration, lacking bool) (time.Duration, map[types.UID]bool, error) {
	type work struct {
		view
		decision
	}
	var (
		todo    []work
		recheck time.Duration
	)
	now := r.now()
	for _, p := range pods {
		if p.quiet {
			continue
		}
		v, err := r.view(ctx, pool, tpl, p.pod, lacking)
		if err != nil {
			return 0, nil, err
		}
		v.waited = waited[p.pod.UID]
		d := decide(v, now)
		recheck = resync.Sooner(recheck, d.recheck)
		if d.step != stepNone {
			todo = append(todo, work{v, d})
		}
	}
	var (
		mu      sync.Mutex // guards recheck and waiting while the group runs
		waiting = map[types.UID]bool{}
		group   errgroup.Group
	)
	group.SetLimit(parallel)
	for _, w := range todo {
		group.Go(func() error {
			again, err := r.apply(ctx, pool, tpl, w.view, w.decision)
			mu.Lock()
			defer mu.Unlock()
			recheck = resync.Sooner(recheck, again)
			if errors.Is(err, errAddressBusy) {
				waiting[w.pod.UID] = true
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	return recheck, waiting, err
}

func (r *SandboxPoolReconciler) view(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pod *corev1.Pod, lacking bool) (view, error) {
	v := view{
		pod:      pod,
		fenced:   claimed(pod) && r.Ledger.SafelyFenced(pod.Annotations[v1alpha1.AnnotationClaim]),
		cooldown: r.Ledger.Cooldown(),
		drain:    pool == nil || pool.DeletionTimestamp != nil || !metav1.IsControlledBy(pod, pool),
	}
	v.outdated = tpl != nil && pod.Annotations[v1alpha1.AnnotationTemplateHash] != tpl.Hash
	_, begun := pod.Annotations[v1alpha1.AnnotationRecycling]
	v.recycle = pool != nil && pool.Spec.RecyclePolicy == v1alpha1.RecycleInPlace && tpl != nil && !v.outdated && !v.drain &&
		(begun || lacking && r.restartsAtOnce(pod) && recyclable(pod, tpl.Pod.Spec.Containers))
	var s *v1alpha1.Sandbox
	if id := pod.Labels[v1alpha1.LabelSandboxID]; id != "" {
		s = &v1alpha1.Sandbox{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: id}, s, client.UnsafeDisableDeepCopy) // it is only read
		if apierrors.IsNotFound(err) {
			s = nil
		} else if err != nil {
			return view{}, fmt.Errorf("reading sandbox %s: %w", id, err)
		}
	}
	v.sandbox = s
	if s == nil {
		s = &v1alpha1.Sandbox{}
	}
	v.startup, _ = v1alpha1.Timeouts(s, pool, tpl.SpecOrNil())
	return v, nil
}

// apply writes a decision. A refused write is no error: the pod has moved on,
// and its event asks for the next decision.
func (r *SandboxPoolReconciler) apply(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, v view, d decision) (time.Duration, error) {
	pod := v.pod
	switch d.step {
	case stepIdle:
		return r.toIdle(ctx, pool, tpl, pod)
	case stepRunning:
		return 0, r.toRunning(ctx, pod)
	case stepFail:
		return 0, r.toFailed(ctx, pool, tpl, pod, d)
	case stepHooks:
		return r.hooks(ctx, pool, tpl, pod, d.recheck)
	case stepResolve:
		return r.resolve(ctx, pool, tpl, pod, d.recheck)
	case stepRecycle:
		return 0, r.recycle(ctx, tpl, pod)
	case stepRewarm:
		return 0, r.rewarm(ctx, pool, tpl, pod)
	case stepRecord:
		return 0, r.putOnRecord(ctx, pod)
	case stepDelete:
		failpoint.Hit("sandboxpool/deleting") // the pod is to be deleted, and is not
		err := r.delete(ctx, pod, d.reason)
		if id := pod.Labels[v1alpha1.LabelSandboxID]; err == nil && id != "" && r.IdleNotifier != nil {
			r.IdleNotifier.OnSandboxReleased(ctx, id)
		}
		failpoint.Hit("sandboxpool/deleted") // the pod is being deleted, with its finalizer
		return 0, err
	case stepForget:
		return 0, r.forget(ctx, pod)
	case stepEnd:
		log.FromContext(ctx).Info("ending a sandbox of a deleted pool", "sandbox", v.sandbox.Name)
		err := writes.EndSandbox(ctx, r.Client, v.sandbox.Name, v1alpha1.EndDeleted, d.message,
			writes.OfUID(v.sandbox.UID), writes.OfClaim(pod.Annotations[v1alpha1.AnnotationClaim]))
		return 0, ignoreMoved(err)
	case stepRehibernate:
		log.FromContext(ctx).Info("taking back the resume of a sandbox of a deleted pool", "sandbox", v.sandbox.Name)
		out := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: v.sandbox.Name}}
		err := r.Client.Patch(ctx, out, writes.Rehibernate(v.sandbox).Build())
		if err != nil && !writes.Moved(err) {
			return 0, fmt.Errorf("taking back the resume of sandbox %s: %w", v.sandbox.Name, err)
		}
		return 0, nil
	default:
		return 0, nil
	}
}

// delete removes exactly the pod that was judged: a claim that came in between
// changed its resourceVersion, and the delete fails.
func (r *SandboxPoolReconciler) delete(ctx context.Context, pod *corev1.Pod, reason string) error {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.LabelPool]}
	r.expectations.ExpectDeletions(key, pod.UID)
	err := r.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}},
		client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if err == nil {
		r.Metrics.deleted(reason)
		return nil
	}
	r.expectations.DeletionObserved(key, pod.UID)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
}
