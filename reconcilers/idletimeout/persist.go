package idletimeout

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
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
	p := writes.For(sandbox.UID).Set("/status/lastActive", metav1.NewTime(at))
	err := s.client.Status().Patch(ctx, out, p.Build())
	if err != nil && !writes.Moved(err) {
		return fmt.Errorf("writing lastActive of %s: %w", sandbox.Name, err)
	}
	return nil
}

// persistLooks is how many claims a check looks at for a lastActive to write: with
// more, each has its turn every few checks.
const persistLooks = 5000

// throttle bounds the writes of lastActive. One goroutine uses it.
type throttle struct {
	// budget is the number of writes allowed at the time refilled.
	budget   float64
	refilled time.Time
}

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

// persist writes lastActive where it moved, in turns, within the budget. A failed
// write is tried again at the next check.
func (r *IdleTimeoutReconciler) persist(ctx context.Context, timeouts *timeouts) {
	if r.store == nil {
		return
	}
	now, all := r.Clock.Now(), r.claims.all
	for range min(len(all), persistLooks) {
		if r.turn >= len(all) {
			r.turn = 0
		}
		t := all[r.turn]
		at, ok := time.Time{}, false
		if t.running && !t.save.After(now) {
			at, ok = r.source.LastActive(t.key.id, t.key.claim)
		}
		if !ok || !at.After(t.saved) {
			r.turn++
			continue
		}
		if !r.saving.allow(now) {
			return // it is the first at the next check
		}
		_, timeout, err := timeouts.of(ctx, t.sandbox)
		if err == nil {
			err = r.store.SaveLastActive(ctx, t.sandbox, at)
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "lastActive is written later")
			return
		}
		t.saved, t.save = at, now.Add(max(leastBetween, timeout/4))
		r.turn++
	}
}
