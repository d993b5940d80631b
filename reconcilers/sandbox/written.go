package sandbox

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ownWrites remembers the last write of each Sandbox, by its name. A look at a
// view that is older than that would decide what was decided already, and its
// writes would be refused; the write's own event asks for the next look. It is
// safe for concurrent use.
type ownWrites struct {
	mu sync.Mutex
	rv map[string]uint64 // the version written; none once the view has it
	// deleted are those that this process has deleted and that are not gone.
	deleted map[string]types.UID
}

func newOwnWrites() *ownWrites {
	return &ownWrites{rv: map[string]uint64{}, deleted: map[string]types.UID{}}
}

// noteDeleted is called after a delete that was taken.
func (w *ownWrites) noteDeleted(s *v1alpha1.Sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[s.Name] = s.UID
}

// isDeleted reports whether this process has deleted the Sandbox, though the view
// may not show it.
func (w *ownWrites) isDeleted(s *v1alpha1.Sandbox) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, ok := w.deleted[s.Name]
	return ok && uid == s.UID
}

// note is called with the Sandbox as the API server answered it.
func (w *ownWrites) note(s *v1alpha1.Sandbox) {
	rv, err := parseRV(s.ResourceVersion)
	if err != nil {
		return // costs a refused write, no more
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv[s.Name] = max(w.rv[s.Name], rv)
}

// ahead reports whether the view of a Sandbox lacks what was written to it.
func (w *ownWrites) ahead(s *v1alpha1.Sandbox) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote, ok := w.rv[s.Name]
	if !ok {
		return false
	}
	if seen, err := parseRV(s.ResourceVersion); err == nil && seen < wrote {
		return true
	}
	delete(w.rv, s.Name)
	return false
}

// forget drops a Sandbox that is gone.
func (w *ownWrites) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.rv, name)
	delete(w.deleted, name)
}
