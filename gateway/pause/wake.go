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
)

// wakeTimeout bounds a resume that requests wait for. It goes on when they have left.
const wakeTimeout = 20 * time.Second

// Wake resumes a paused sandbox because an authorised request asks for it, if its record
// allows that, for as long as its lifetime says; one that a first request made ends by its
// idle timeout alone. All requests of this gateway for it
// share one resume; of several gateways one writes it. nil says that it is not paused any
// more; ErrChanged, that no request resumes it, or that the ID is of another sandbox than
// this UID's, for which the request was not authorised: resolve again. A HibernatedError
// says that it needs a pod, which is not this package's to find.
func (p *Pauser) Wake(ctx context.Context, id string, uid types.UID) error {
	defer p.metrics.wait()()
	done := p.wakes.DoChan(string(uid), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
		defer cancel()
		begun := time.Now()
		err := p.wake(ctx, id, uid)
		p.metrics.did(opWake, v1alpha1.PauseFreeze, begun, err)
		return nil, err
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Pauser) wake(ctx context.Context, id string, uid types.UID) error {
	s := &v1alpha1.Sandbox{}
	err := p.api.Get(ctx, types.NamespacedName{Name: id}, s)
	switch {
	case apierrors.IsNotFound(err):
		return ErrChanged
	case err != nil:
		return fmt.Errorf("reading sandbox %s: %w", id, err)
	case s.UID != uid, s.Spec.End != nil:
		return ErrChanged
	case !s.Spec.Paused:
		return nil
	case !v1alpha1.ResumedByRequests(s):
		return ErrChanged
	}
	lifetime := v1alpha1.AutoLifetime(s)
	if s.Spec.FirstRequest && s.Spec.Timeouts.Lifetime == nil { // it has its idle timeout alone, as before
		lifetime = 0
	}
	if v1alpha1.Hibernated(s) {
		return &HibernatedError{Lifetime: lifetime}
	}
	var end *metav1.Time
	if lifetime > 0 {
		end = new(metav1.NewTime(time.Now().Add(lifetime).UTC().Truncate(time.Second).Add(time.Second)))
	}
	if err := p.resume(ctx, s, end); err != nil && !errors.Is(err, ErrChanged) {
		return err
	}
	return nil
}
