package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// wakeTimeout bounds a resume that requests wait for. The resume goes on if they leave.
const wakeTimeout = 20 * time.Second

// Wake resumes a paused sandbox for an authorised request, if the sandbox allows that
// (autoResume). The sandbox then ends after its lifetime from now; one that a first request
// made and that has no lifetime gets no end time, only its idle timeout. All requests for
// the sandbox at this gateway share one resume; of several gateways one writes the resume.
//
// Wake returns what is left to do: the zero Resume if the sandbox is not paused any more, and
// its Resume if it needs a new pod, which package activation gives it. After writes.ErrStale the caller
// resolves the request again: the sandbox does not allow the resume, or the ID belongs to
// another sandbox than the one with this UID, for which the request was authorised.
func (p *Pauser) Wake(ctx context.Context, id string, uid types.UID) (left routing.Resume, err error) {
	defer p.metrics.markWaiting()()
	done := p.wakes.DoChan(string(uid), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
		defer cancel()
		begun := time.Now()
		left, err := p.wake(ctx, id, uid)
		if left.UID != "" {
			p.metrics.observeAs(opWake, v1alpha1.PauseFreeze, begun, outcomeHibernated)
		} else {
			p.metrics.observe(opWake, v1alpha1.PauseFreeze, begun, err)
		}
		return left, err
	})
	select {
	case r := <-done:
		return r.Val.(routing.Resume), r.Err
	case <-ctx.Done():
		return routing.Resume{}, ctx.Err()
	}
}

func (p *Pauser) wake(ctx context.Context, id string, uid types.UID) (left routing.Resume, err error) {
	s := &v1alpha1.Sandbox{}
	err = p.api.Get(ctx, types.NamespacedName{Name: id}, s)
	switch {
	case apierrors.IsNotFound(err):
		return left, writes.ErrStale
	case err != nil:
		return left, fmt.Errorf("reading sandbox %s: %w", id, err)
	case s.UID != uid, s.Spec.End != nil:
		return left, writes.ErrStale
	case !s.Spec.Paused && !v1alpha1.WithoutPod(s):
		return left, nil
	case !v1alpha1.ResumedByRequests(s):
		return left, writes.ErrStale
	}
	lifetime := v1alpha1.AutoLifetime(s)
	if s.Spec.FirstRequest && s.Spec.Timeouts.Lifetime == nil { // only its idle timeout ends it, as before the pause
		lifetime = 0
	}
	if err := p.awaitSaved(ctx, s); err != nil {
		return left, err
	}
	if v1alpha1.WithoutPod(s) {
		return routing.Resume{UID: uid, Lifetime: lifetime}, nil
	}
	var end *metav1.Time
	if lifetime > 0 {
		end = v1alpha1.EndAfter(time.Now(), lifetime)
	}
	if err := p.resume(ctx, s, end); err != nil && !errors.Is(err, writes.ErrStale) {
		return left, err
	}
	return left, nil
}
