package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// End implements restapi.Sandboxes. The UID is tested, so that a later sandbox of the
// same ID, perhaps of another namespace, is not ended.
func (x *Backend) End(ctx context.Context, namespace, id string) error {
	s, err := x.getBy(ctx, namespace, id, x.live.SandboxToEnd)
	if err != nil {
		return err
	}
	err = writes.EndSandbox(ctx, x.api, id, v1alpha1.EndReleased, "killed through the API", writes.OfUID(s.UID))
	if errors.Is(err, writes.ErrStale) || apierrors.IsNotFound(err) {
		return restapi.ErrNotFound
	}
	if err != nil {
		return err
	}
	if b := s.Spec.Binding; b != nil {
		x.ended.Add(b.ClaimID)
	}
	x.cache.Invalidate(id) // after add: a request that resolves from now on finds it ended
	return nil
}

// endSlack is by how much an end may be outside of a sandbox's longest life: clocks
// differ, and times are rounded.
const endSlack = time.Minute

// possibleEnd reports whether a sandbox made at `made` may end at `at`. The REST API
// asks for no other end unless it has a bug.
func possibleEnd(made, at time.Time) bool {
	return !at.Before(made.Add(-endSlack)) && !at.After(made.Add(v1alpha1.MaxLifetime+endSlack))
}

// setEndTries bounds how often SetEnd starts over because the sandbox changed.
const setEndTries = 5

// SetEnd implements restapi.Sandboxes. The write tests that the sandbox is as it was
// judged, so that of two at once the second judges anew.
func (x *Backend) SetEnd(ctx context.Context, namespace, id string, at time.Time, shorten bool) (restapi.Sandbox, error) {
	to := metav1.NewTime(at.UTC().Truncate(time.Second))
	for range setEndTries {
		s, err := x.get(ctx, namespace, id)
		if err != nil {
			return restapi.Sandbox{}, err
		}
		switch {
		case v1alpha1.NextPauseStep(s) == v1alpha1.PauseStepSave:
			return restapi.Sandbox{}, restapi.ErrPausing
		case s.Spec.Paused:
			return restapi.Sandbox{}, restapi.ErrPaused
		case s.Spec.Restore != nil: // its end is set when it runs
			return restapi.Sandbox{}, restapi.ErrResuming
		}
		if !possibleEnd(lifeSince(s), at) {
			return restapi.Sandbox{}, restapi.Invalidf("it cannot end at %s", at.UTC().Format(time.RFC3339))
		}
		was := s.Spec.Timeouts.EndAt
		if was != nil && was.Equal(&to) || !shorten && (was == nil || !to.After(was.Time)) {
			return x.describe(s), nil
		}
		if err = x.writeEnd(ctx, s, to); err == nil {
			return x.describe(s), nil
		}
		if !errors.Is(err, writes.ErrStale) {
			return restapi.Sandbox{}, fmt.Errorf("set the end of sandbox %s: %w", id, err)
		}
	}
	return restapi.Sandbox{}, fmt.Errorf("set the end of sandbox %s: %w", id, writes.ErrStale)
}

// writeEnd sets a sandbox's end time and updates s. It tests that the spec is as
// it was read: the generation counts its changes, whatever form a time has.
func (x *Backend) writeEnd(ctx context.Context, s *v1alpha1.Sandbox, to metav1.Time) error {
	p := writes.For(s.UID).
		Test("/metadata/generation", s.Generation).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil)
	if s.Spec.Timeouts == (v1alpha1.SandboxTimeouts{}) { // there may be no object to add to
		p = p.Set("/spec/timeouts", v1alpha1.SandboxTimeouts{EndAt: &to})
	} else {
		p = p.Set("/spec/timeouts/endAt", to)
	}
	err := x.api.Patch(ctx, s, p.Build())
	switch writes.Judge(err) {
	case writes.TestFailed, writes.Conflict, writes.Gone:
		return writes.ErrStale
	}
	return err
}
