package idletimeout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

const (
	// writesPerSecond bounds what lastActive costs the API server in all.
	writesPerSecond = 20
	// leastBetween bounds it for one sandbox, as does a quarter of its timeout.
	leastBetween = time.Minute
)

// NewSandboxStore returns the store that keeps lastActive on the Sandbox's
// status.
func NewSandboxStore(c client.Client) SandboxStore { return statusStore{c} }

type statusStore struct{ client client.Client }

// SaveLastActive patches status.lastActive of exactly this object. One that is
// gone, or has no status yet, is no error.
func (s statusStore) SaveLastActive(ctx context.Context, sandbox *v1alpha1.Sandbox, at time.Time) error {
	out := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: sandbox.Name}}
	p := jsonpatch.For(sandbox.UID).Set("/status/lastActive", metav1.NewTime(at))
	err := s.client.Status().Patch(ctx, out, p.Build())
	if err != nil && !jsonpatch.Refused(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing lastActive of %s: %w", sandbox.Name, err)
	}
	return nil
}

// throttle spreads the writes of lastActive. One goroutine uses it.
type throttle struct {
	saved map[claimKey]saved
	// budget is the number of writes allowed at the time refilled.
	budget   float64
	refilled time.Time
}

// saved is the last write for a claim: when, and what it said.
type saved struct{ at, value time.Time }

func newThrottle() *throttle { return &throttle{saved: map[claimKey]saved{}} }

func (t *throttle) forget(key claimKey) { delete(t.saved, key) }

// allow takes one write out of the budget, if there is one.
func (t *throttle) allow(now time.Time) bool {
	if t.refilled.IsZero() {
		t.budget = writesPerSecond
	} else {
		t.budget = min(t.budget+now.Sub(t.refilled).Seconds()*writesPerSecond, writesPerSecond)
	}
	t.refilled = now
	if t.budget < 1 {
		return false
	}
	t.budget--
	return true
}

// persist writes lastActive where it moved, oldest write first, within the
// budget. A failed write is tried again at the next check.
func (r *IdleTimeoutReconciler) persist(ctx context.Context, running []*v1alpha1.Sandbox, used map[string]time.Time, timeouts *timeouts) {
	if r.store == nil {
		return
	}
	now := r.Clock.Now()
	var due []*v1alpha1.Sandbox
	for _, s := range running {
		at, ok := used[s.Name]
		last := r.saving.saved[keyOf(s)]
		if !ok || !at.After(last.value) {
			continue
		}
		_, timeout, err := timeouts.of(ctx, s)
		if err != nil {
			log.FromContext(ctx).Error(err, "lastActive is written later")
			return
		}
		between := max(leastBetween, timeout/4)
		if last.at.IsZero() || now.Sub(last.at) >= between {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *v1alpha1.Sandbox) int {
		return cmp.Or(r.saving.saved[keyOf(a)].at.Compare(r.saving.saved[keyOf(b)].at), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range due {
		if !r.saving.allow(now) {
			return
		}
		if err := r.store.SaveLastActive(ctx, s, used[s.Name]); err != nil {
			log.FromContext(ctx).Error(err, "lastActive is written later")
			return
		}
		r.saving.saved[keyOf(s)] = saved{now, used[s.Name]}
	}
}
