package files

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// firstRefusal is how long no pod is taken for a sandbox after its restore has failed in
	// a second pod. The time doubles with each further pod, up to longestRefusal.
	firstRefusal, longestRefusal = 10 * time.Second, 5 * time.Minute
	// forgetRefusals is how long the failures are remembered after that time.
	forgetRefusals = 10 * time.Minute
)

// refusals remember the sandboxes whose resumes this gateway had to take back, to delay
// their next resumes: each failed resume costs a pod, so requests for a sandbox that cannot
// be restored would empty the pool. Safe for concurrent use.
type refusals struct {
	mu  sync.Mutex
	all map[refused]*refusal // guarded by mu
}

// refused names files that could not be restored. A sandbox that is paused anew has another
// Checkpoint, and begins without refusals.
type refused struct {
	sandbox    types.UID
	checkpoint string
}

// refusal says how many resumes were taken back, and until when no further pod is taken.
type refusal struct {
	wait  time.Duration // the last one
	until time.Time
}

// note counts a resume that was taken back. The first one delays nothing, since its cause
// may have been the pod.
func (r *refusals) note(s *v1alpha1.Sandbox, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[refused]*refusal{}
	}
	for key, old := range r.all {
		if now.Sub(old.until) > forgetRefusals {
			delete(r.all, key)
		}
	}
	key := refused{s.UID, s.Spec.Restore.Checkpoint}
	last := r.all[key]
	if last == nil {
		r.all[key] = &refusal{until: now}
		return
	}
	last.wait = backoff.Next(last.wait, firstRefusal, longestRefusal)
	last.until = now.Add(last.wait)
}

// forget forgets the refusals of a sandbox that is restored.
func (r *refusals) forget(s *v1alpha1.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, refused{s.UID, s.Spec.Restore.Checkpoint})
}

// delay returns how long no pod is to be taken for the sandbox yet.
func (r *refusals) delay(s *v1alpha1.Sandbox, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.all[refused{s.UID, s.Spec.Restore.Checkpoint}]; last != nil {
		return max(last.until.Sub(now), 0)
	}
	return 0
}
