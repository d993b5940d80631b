package sandbox

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ownWrites remembers this process's last write of each Sandbox, by its name. A reconcile of
// an object from the cache that is older than that write would decide the same again, and
// its writes would be refused; the event of the write leads to the next reconcile. It is safe
// for concurrent use.
type ownWrites struct {
	mu sync.Mutex
	rv map[string]uint64 // the version written; none once the cache has shown it
	// deleted are the Sandboxes that this process has deleted and the cache still shows.
	deleted map[string]types.UID
}

func newOwnWrites() *ownWrites {
	return &ownWrites{rv: map[string]uint64{}, deleted: map[string]types.UID{}}
}

// noteDeleted notes that this process has deleted the Sandbox.
func (w *ownWrites) noteDeleted(s *v1alpha1.Sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[s.Name] = s.UID
}

// isDeleted reports whether this process has deleted the Sandbox; the cache may not show that
// yet.
func (w *ownWrites) isDeleted(s *v1alpha1.Sandbox) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, ok := w.deleted[s.Name]
	return ok && uid == s.UID
}

// note notes a write; s is the Sandbox in the API server's answer.
func (w *ownWrites) note(s *v1alpha1.Sandbox) {
	rv, err := parseRV(s.ResourceVersion)
	if err != nil {
		return // the only consequence is a refused write
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv[s.Name] = max(w.rv[s.Name], rv)
}

// ahead reports whether this process has written a later version of the Sandbox than s.
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

// forget forgets a Sandbox that is gone.
func (w *ownWrites) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.rv, name)
	delete(w.deleted, name)
}
