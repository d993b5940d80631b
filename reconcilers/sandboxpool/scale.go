package sandboxpool

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// counts is a pool's pods by what they are to scaling.
type counts struct {
	warming, idle, unavailableIdle, starting, running, stopping, failed int
	// waiting are warming pods whose address is still not free after
	// addressPatience, the oldest first. They are no stock, and not among warming.
	waiting []*corev1.Pod
	// total counts every pod object, also those being deleted: it is what
	// maxPods bounds.
	total int
	// deleting of the total are on their way out.
	deleting int
	// spare are unclaimed pods that may be deleted, in the order to delete.
	spare []*corev1.Pod
	// outdated of the spare ones are of another template.
	outdated int
}

// unclaimed counts the pods that are or become stock.
func (c counts) unclaimed() int { return c.warming + c.idle }

// census counts the pool's pods. Pods that are being deleted count only towards
// the total; those of an earlier pool of the same name too. waiting holds the UIDs
// of pods that wait for their address for too long. It is pure.
func census(pods []corev1.Pod, hash string, pool *v1alpha1.SandboxPool, waiting map[types.UID]bool) counts {
	c := counts{total: len(pods)}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			c.deleting++
			continue
		}
		if !metav1.IsControlledBy(pod, pool) {
			continue
		}
		switch v1alpha1.PhaseOf(pod) {
		case v1alpha1.PodWarming:
			if waiting[pod.UID] {
				c.waiting = append(c.waiting, pod)
				continue
			}
			c.warming++
			c.spare = append(c.spare, pod)
		case v1alpha1.PodIdle:
			c.idle++
			if !ready(pod) {
				c.unavailableIdle++
			}
			if hash != "" && pod.Annotations[v1alpha1.AnnotationTemplateHash] != hash {
				c.outdated++
			}
			c.spare = append(c.spare, pod)
		case v1alpha1.PodStarting:
			c.starting++
		case v1alpha1.PodRunning:
			c.running++
		case v1alpha1.PodStopping:
			c.stopping++
		case v1alpha1.PodFailed:
			c.failed++
		}
	}
	rank := func(p *corev1.Pod) int {
		switch {
		case v1alpha1.PhaseOf(p) == v1alpha1.PodWarming:
			return 0
		case hash != "" && p.Annotations[v1alpha1.AnnotationTemplateHash] != hash:
			return 1
		case !ready(p):
			return 2
		default:
			return 3
		}
	}
	// What serves nobody yet goes first, then the longest idle.
	older := func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}
	slices.SortStableFunc(c.spare, func(a, b *corev1.Pod) int { return cmp.Or(rank(a)-rank(b), older(a, b)) })
	slices.SortStableFunc(c.waiting, older)
	return c
}

// leastWaiting is how many pods may wait for their addresses in any pool, also in
// one with fewer replicas.
const leastWaiting = 20

// scaling is how many pods to create or delete. At most one of create and remove
// is not 0.
type scaling struct {
	create, remove int
	// release is how many of those that wait for their address to delete.
	release int
	// full: maxPods keeps the pool from having spec.replicas unclaimed pods.
	full bool
}

// decideScale is the scale decision; it is pure. probing: creations have failed
// lately, so one pod at a time is tried.
//
// A pod that waits for its address keeps it from those that are made in its
// place: were it deleted first, the next might get the same one, and again. It is
// stock once the address is free. It goes earlier if maxPods leaves no room for
// another, or if too many wait.
func decideScale(c counts, replicas, maxPods int, probing bool) scaling {
	var s scaling
	if replicas == 0 {
		s.release = len(c.waiting)
	} else {
		s.release = max(len(c.waiting)-max(replicas, leastWaiting), 0)
	}
	release := func(n int) { s.release = max(s.release, min(n, len(c.waiting))) }
	if maxPods > 0 {
		over := c.total - c.deleting - maxPods
		release(over)
		if over -= s.release; over > 0 && c.unclaimed() > 0 {
			s.remove, s.full = min(max(over, c.unclaimed()-replicas), c.unclaimed()), true
			return s
		}
	}
	missing := replicas - c.unclaimed()
	if missing < 0 {
		s.remove = -missing
		return s
	}
	s.create = missing
	if maxPods > 0 {
		room := max(maxPods-c.total, 0)
		s.full = room < s.create
		release(s.create - room)
		s.create = min(s.create, room)
	}
	if probing {
		s.create = min(s.create, max(1-c.warming, 0))
	}
	if s.create == 0 && c.outdated > 0 && c.warming == 0 {
		// A new template: replace a quarter at a time, from a full stock only.
		s.remove = min(c.outdated, max(1, replicas/4))
	}
	return s
}

// outcome is what scaling found and did, for the status.
type outcome struct {
	census  counts
	scaling scaling
	trouble *trouble
	recheck time.Duration
}

// scale creates or deletes unclaimed pods. Errors of the API server become
// trouble, shown in the status and waited out.
func (r *SandboxPoolReconciler) scale(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *poolTemplate, templateErr error, c counts) outcome {
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	out := outcome{census: c}
	if templateErr != nil {
		te := templateErr.(*templateError) //nolint:errorlint // the caller lets no other through
		out.trouble = &trouble{reason: te.reason, message: te.message}
	}
	var wait time.Duration
	if tpl != nil {
		out.trouble, wait = r.backoff.state(key, tpl.hash)
	}
	out.scaling = decideScale(c, int(pool.Spec.Replicas), int(pool.Spec.MaxPods), out.trouble != nil)
	if !r.expectations.Satisfied(key) {
		// The cache lags behind this process's own writes. Their events ask again;
		// if none comes, the expectations run out.
		return out
	}
	for _, pod := range c.waiting[:out.scaling.release] {
		if err := r.delete(ctx, pod, "AddressBusy"); err != nil {
			log.FromContext(ctx).Error(err, "replacing a pod whose address is not free")
			out.recheck = backoffFirst
		}
	}
	if out.scaling.remove > 0 {
		for _, pod := range c.spare[:out.scaling.remove] {
			if err := r.delete(ctx, pod, "ScaleDown"); err != nil {
				log.FromContext(ctx).Error(err, "scaling down")
				out.recheck = backoffFirst
			}
		}
		return out
	}
	if out.scaling.create == 0 || tpl == nil {
		return out
	}
	if wait > 0 {
		out.recheck = wait
		return out
	}
	if created, err := r.create(ctx, pool, tpl, out.scaling.create); err != nil {
		reason, message := explain(err)
		r.backoff.failed(key, tpl.hash, reason, message)
		r.event(pool, corev1.EventTypeWarning, "CreateFailed", "Create", "creating a pod failed: %s", message)
		log.FromContext(ctx).Info("creating pods failed", "created", created, "wanted", out.scaling.create, "reason", reason)
		out.trouble, out.recheck = r.backoff.state(key, tpl.hash)
	}
	return out
}
