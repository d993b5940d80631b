package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
)

// reconcileLive reconciles a sandbox that has not ended.
func (r *Reconciler) reconcileLive(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	pod, err := boundPod(ctx, r.Client, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	v := view{sandbox: s, pod: pod, grace: r.BindGrace, unknownFor: r.UnknownFor}
	if v.startup, err = r.startupTimeout(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if s.Spec.Binding == nil || (pod != nil && v1alpha1.Backs(pod, s) && !stoppedUnserved(s, pod)) {
		r.unbound.forget(s.Name)
	} else {
		v.unclaimedFor = r.unbound.since(s.Name, s.Spec.Binding.ClaimID)
	}
	if awaited(s) && s.Status.Address == "" {
		v.podlessFor = r.podless.since(s.Name, string(s.UID))
	} else {
		r.podless.forget(s.Name)
	}
	if v1alpha1.Restoring(s) {
		of := string(s.UID)
		if b := s.Spec.Binding; b != nil { // a later resume has another claim, and its time counts anew
			of = b.ClaimID
		}
		v.restoringFor = r.restoring.since(s.Name, of)
	} else {
		r.restoring.forget(s.Name)
	}
	if s.Spec.Paused {
		pool, err := r.poolOf(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		v.pausedFor = v1alpha1.PausedFor(s, pool)
		if s.Spec.Binding != nil {
			v.silentFor = r.orders.silentFor(freezerOrderOf(s))
		}
		if r.Hibernates {
			v.hibernateAfter = v1alpha1.HibernateAfter(pool)
		}
	}
	d := decide(v, r.now())
	if d.step == stepConfirm {
		if v.pod, err = boundPod(ctx, r.APIReader, s); err != nil {
			return ctrl.Result{}, err
		}
		v.confirmed = true
		d = decide(v, r.now())
	}
	recheck, s, err := r.writeLive(ctx, s, v.pod, d)
	if err != nil {
		return retryIfMoved(err)
	}
	d.recheck = resync.Sooner(d.recheck, recheck)
	if err := r.apply(ctx, s, v.pod, d); err != nil {
		return ctrl.Result{}, err
	}
	if r.mayHaveFormerClaims(s) {
		wait, err := r.endFormerClaims(ctx, s)
		if err != nil {
			return retryIfMoved(err)
		}
		d.recheck = resync.Sooner(d.recheck, wait)
	}
	return ctrl.Result{RequeueAfter: d.recheck}, nil
}

func (r *Reconciler) apply(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, d decision) error {
	switch d.step {
	case stepEnd:
		return r.writeEnd(ctx, s, d.reason, d.message)
	case stepHibernate:
		if err := r.patch(ctx, s, writes.HibernateFrozen(s)); err != nil {
			return fmt.Errorf("making it hibernate: %w", err)
		}
		return nil
	case stepPause:
		paused, err := r.pauseByTimeout(ctx, s, writes.PauseAs(s, v1alpha1.TimeoutMode(s)))
		if err != nil || paused {
			return err
		}
		return r.writeEnd(ctx, s, v1alpha1.EndEndAt, "its end time has come, and its pool has as many paused sandboxes as it may, or its mode of pause is not supported")
	case stepResume:
		if err := r.patch(ctx, s, writes.Resume(s, r.endAfterPause(s))); err != nil {
			return fmt.Errorf("resuming it as it cannot be frozen: %w", err)
		}
		return nil
	case stepRehibernate:
		log.FromContext(ctx).Info("taking back a resume: the sandbox hibernates again", "reason", d.message)
		if err := r.patch(ctx, s, writes.Rehibernate(s)); err != nil {
			return fmt.Errorf("taking back a resume: %w", err)
		}
		return nil
	case stepApply:
		if r.ApplyClaim == nil {
			return nil
		}
		if err := r.ApplyClaim(ctx, s, pod); err != nil {
			return fmt.Errorf("applying the claim on pod %s: %w", pod.Name, err)
		}
		return nil
	case stepUnbind:
		log.FromContext(ctx).Info("removing a binding whose claim cannot get onto its pod or serve there", "pod", s.Spec.Binding.PodName)
		if pod != nil && mayBeClaimed(pod) {
			// The gateway that owns the claim gave up, but its PATCH may still be applied.
			p := writes.For(pod.UID).Test(writes.Phase, v1alpha1.PodIdle).Test(writes.Claim, nil)
			if _, err := stopPod(ctx, r.Client, pod, p); errors.Is(err, writes.ErrStale) {
				return nil // the event of the pod's change queues the sandbox
			} else if err != nil {
				return err
			}
		}
		err := r.patch(ctx, s, writes.For(s.UID).
			Test("/spec/end", nil).
			Test("/spec/binding/claimID", s.Spec.Binding.ClaimID).
			Remove("/spec/binding"))
		if err != nil {
			return fmt.Errorf("removing the binding: %w", err)
		}
		return nil
	case stepDelete:
		// With the resourceVersion, a sandbox that was bound meanwhile is not deleted.
		err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting a sandbox that never had a pod: %w", err)
		}
		return nil
	default:
		return nil
	}
}

// boundPod reads the pod that the binding names; nil if there is no pod of that name and UID.
func boundPod(ctx context.Context, reader client.Reader, s *v1alpha1.Sandbox) (*corev1.Pod, error) {
	b := s.Spec.Binding
	if b == nil {
		return nil, nil
	}
	pod := &corev1.Pod{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: b.PodName}, pod)
	if apierrors.IsNotFound(err) || (err == nil && string(pod.UID) != b.PodUID) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", b.PodName, err)
	}
	return pod, nil
}

// startupTimeout returns the sandbox's startup timeout; 0 for a sandbox for which no client
// waits, or that has had a pod.
func (r *Reconciler) startupTimeout(ctx context.Context, s *v1alpha1.Sandbox) (time.Duration, error) {
	if !awaited(s) || s.Status.Address != "" {
		return 0, nil
	}
	pool := &v1alpha1.SandboxPool{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}, pool); apierrors.IsNotFound(err) {
		pool = nil
	} else if err != nil {
		return 0, fmt.Errorf("reading pool %s: %w", s.Spec.Pool, err)
	}
	var template *v1alpha1.SandboxTemplateSpec
	if pool != nil {
		template = pool.Spec.Template
		if ref := pool.Spec.TemplateRef; ref != nil {
			t := &v1alpha1.SandboxTemplate{}
			if err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, t); err == nil {
				template = &t.Spec
			} else if !apierrors.IsNotFound(err) {
				return 0, fmt.Errorf("reading template %s: %w", ref.Name, err)
			}
		}
	}
	startup, _ := v1alpha1.Timeouts(s, pool, template)
	return startup, nil
}

// firstSeen remembers when this process first saw a state of each sandbox, for example that
// its binding has no claim on the pod. It is safe for concurrent use.
type firstSeen struct {
	clock clock.PassiveClock

	mu sync.Mutex
	at map[string]sighting
}

type sighting struct {
	key   string // the claim ID or the sandbox's UID, for which the time counts
	since time.Time
}

// since returns how long this process has seen the state of the sandbox with this ID for the
// same key (a claim ID, or the sandbox's UID). With a new key the time starts at 0.
func (f *firstSeen) since(id, key string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, ok := f.at[id]
	if !ok || seen.key != key {
		seen = sighting{key, f.clock.Now()}
		f.at[id] = seen
	}
	return f.clock.Since(seen.since)
}

func (f *firstSeen) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, id)
}
