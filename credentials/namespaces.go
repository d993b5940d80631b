package credentials

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// namespaces is the store behind the Verifier's second reflector: the UID of each
// namespace that there is.
type namespaces struct {
	synced chan struct{} // closed once the first list is in
	once   sync.Once     // closes synced

	mu   sync.RWMutex
	uids map[string]types.UID // by name; guarded by mu
}

var _ cache.ReflectorStore = (*namespaces)(nil)

func newNamespaces() *namespaces {
	return &namespaces{synced: make(chan struct{}), uids: map[string]types.UID{}}
}

// is reports whether the namespace of this name has this UID.
func (n *namespaces) is(name string, uid types.UID) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return uid != "" && n.uids[name] == uid
}

// Add takes a new namespace from the watch.
func (n *namespaces) Add(obj any) error { return n.Update(obj) }

// Update takes a changed namespace from the watch.
func (n *namespaces) Update(obj any) error {
	ns := obj.(*corev1.Namespace)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uids[ns.Name] = ns.UID
	return nil
}

// Delete takes a deleted namespace from the watch.
func (n *namespaces) Delete(obj any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.uids, obj.(*corev1.Namespace).Name)
	return nil
}

// Replace takes a whole list.
func (n *namespaces) Replace(list []any, _ string) error {
	uids := make(map[string]types.UID, len(list))
	for _, obj := range list {
		ns := obj.(*corev1.Namespace)
		uids[ns.Name] = ns.UID
	}
	n.mu.Lock()
	n.uids = uids
	n.mu.Unlock()
	n.once.Do(func() { close(n.synced) })
	return nil
}

// Resync does nothing: every change was applied when the watch delivered it.
func (n *namespaces) Resync() error { return nil }
