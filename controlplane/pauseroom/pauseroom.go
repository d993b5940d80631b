// Package pauseroom keeps a process from pausing more sandboxes of a pool than the pool's
// maxPaused, though the process's watch is behind its own writes. Each gateway has a Rooms for the
// pauses that clients ask for, the controller one for those of timeouts.
//
// Before a pause is written, Take asks for room. From then on the sandbox counts as paused, until
// one of these:
//
//	the caller calls GiveBack              the pause has failed
//	the watch shows a later pauseOrder     the watch counts the pause, or the sandbox was resumed
//	the watch shows that it has ended,     it needs no room any more
//	does not show it, or shows another
//	sandbox of its name
//
// So a pause that is written counts for as long as the watch does not show it, also after its
// caller has returned. After a write whose outcome is unknown the caller gives the room back: if
// the pause was written, the watch shows and counts it soon, and until then one sandbox too many
// may be paused; if it was not, nothing would ever free the room, and the pool could pause one
// sandbox less.
//
// What other processes pause meanwhile is not counted: together they may exceed the limit by a
// few. So may sandboxes that are paused before the watch shows that they were made.
package pauseroom

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Watch is what a process's watch shows of sandboxes.
type Watch interface {
	// Paused returns how many paused sandboxes of a pool keep their pods.
	Paused(ctx context.Context, namespace, pool string) (int, error)
	// PauseOrder returns the UID and the spec.pauseOrder of a sandbox; an empty UID if there is
	// none or it has ended.
	PauseOrder(ctx context.Context, id string) (types.UID, int64, error)
}

// Rooms are the sandboxes that count as paused though the watch does not show it. Safe for
// concurrent use; the zero value is ready.
type Rooms struct {
	mu    sync.Mutex // guards taken
	taken map[string]*room
}

// room is a sandbox as it was when it took room.
type room struct {
	namespace, pool string
	uid             types.UID
	order           int64 // its pauseOrder; its pause has a later one
	calls           int   // how many calls of Take were not followed by GiveBack
}

// Take reports whether the sandbox may be paused: most sandboxes of its pool may be, and the other
// ones are fewer. If so, it counts as paused from now on. Call GiveBack if the pause fails.
func (r *Rooms) Take(ctx context.Context, w Watch, s *v1alpha1.Sandbox, most int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := 0
	for id, t := range r.taken {
		uid, order, err := w.PauseOrder(ctx, id)
		switch {
		case err != nil:
			return false, fmt.Errorf("reading a sandbox that is being paused: %w", err)
		case uid != t.uid || order > t.order:
			delete(r.taken, id)
		case id != s.Name && t.namespace == s.Spec.Namespace && t.pool == s.Spec.Pool:
			others++
		}
	}
	// Paused is called last: what the watch shows in between counts twice, and is never missed.
	n, err := w.Paused(ctx, s.Spec.Namespace, s.Spec.Pool)
	if err != nil || n+others >= most {
		return false, err
	}
	t := r.taken[s.Name]
	if t == nil || t.uid != s.UID || t.order != s.Spec.PauseOrder {
		t = &room{namespace: s.Spec.Namespace, pool: s.Spec.Pool, uid: s.UID, order: s.Spec.PauseOrder}
		if r.taken == nil {
			r.taken = map[string]*room{}
		}
		r.taken[s.Name] = t
	}
	t.calls++
	return true, nil
}

// GiveBack says that a pause for which Take gave room has failed, or may have. The sandbox still
// counts if another call of Take gave room for the same pause.
func (r *Rooms) GiveBack(s *v1alpha1.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.taken[s.Name]
	if t == nil || t.uid != s.UID {
		return
	}
	if t.calls--; t.calls == 0 {
		delete(r.taken, s.Name)
	}
}
