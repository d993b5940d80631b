package snapshots

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
)

const (
	// firstRefusal is for how long no pod is taken for a sandbox after its restore has failed
	// in a second pod; it doubles with each further one, up to longestRefusal.
	firstRefusal, longestRefusal = 10 * time.Second, 5 * time.Minute
	// forgetRefusals is how long after that time the failures are remembered.
	forgetRefusals = 10 * time.Minute
)

// refusals are the sandboxes whose resumes this gateway had to take back. Each failed
// resume costs a pod, so that requests for a sandbox that cannot be restored would empty
// the pool. Safe for concurrent use.
type refusals struct {
	mu sync.Mutex
	of map[refused]*refusal // guarded by mu
}

// refused names files that were not restored. A sandbox that is paused anew has another
// Checkpoint.
type refused struct {
	sandbox    types.UID
	checkpoint string
}

type refusal struct {
	wait  time.Duration // the last one
	until time.Time
}

// note counts a resume that was taken back. After the first one the next pod is taken at
// once, since the pod may be to blame.
func (r *refusals) note(s *v1alpha1.Sandbox, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[refused]*refusal{}
	}
	for other, old := range r.of {
		if now.Sub(old.until) > forgetRefusals {
			delete(r.of, other)
		}
	}
	what := refused{s.UID, s.Spec.Restore.Checkpoint}
	was := r.of[what]
	if was == nil {
		r.of[what] = &refusal{until: now}
		return
	}
	was.wait = backoff.Next(was.wait, firstRefusal, longestRefusal)
	was.until = now.Add(was.wait)
}

// forget notes that the sandbox is restored.
func (r *refusals) forget(s *v1alpha1.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, refused{s.UID, s.Spec.Restore.Checkpoint})
}

// wait returns for how long no pod is to be taken for the sandbox.
func (r *refusals) wait(s *v1alpha1.Sandbox, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.of[refused{s.UID, s.Spec.Restore.Checkpoint}]; was != nil {
		return max(was.until.Sub(now), 0)
	}
	return 0
}
