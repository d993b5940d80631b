package credentials

import (
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// keyring is the store behind the Verifier's reflector: the known keys by ID. It
// keeps records of its own, not Secrets.
type keyring struct {
	log    *slog.Logger
	synced chan struct{} // closed once the first list is in
	once   sync.Once     // closes synced

	mu   sync.RWMutex
	keys map[string]*record // by ID; guarded by mu; a record is never changed
}

var _ cache.ReflectorStore = (*keyring)(nil)

func newKeyring(log *slog.Logger) *keyring {
	return &keyring{log: log, synced: make(chan struct{}), keys: map[string]*record{}}
}

func (k *keyring) get(id string) *record {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.keys[id]
}

// Add takes a new Secret from the watch.
func (k *keyring) Add(obj any) error { return k.Update(obj) }

// Update takes a changed Secret from the watch. One that cannot be read as a key
// takes the key out.
func (k *keyring) Update(obj any) error {
	secret := obj.(*corev1.Secret)
	r := k.read(secret)
	k.mu.Lock()
	defer k.mu.Unlock()
	if r == nil {
		delete(k.keys, idOf(secret))
	} else {
		k.keys[r.KeyID] = r
	}
	return nil
}

// Delete takes a deleted Secret from the watch.
func (k *keyring) Delete(obj any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, idOf(obj.(*corev1.Secret)))
	return nil
}

// Replace takes a whole list.
func (k *keyring) Replace(list []any, _ string) error {
	keys := make(map[string]*record, len(list))
	for _, obj := range list {
		if r := k.read(obj.(*corev1.Secret)); r != nil {
			keys[r.KeyID] = r
		}
	}
	k.mu.Lock()
	k.keys = keys
	k.mu.Unlock()
	k.once.Do(func() { close(k.synced) })
	return nil
}

// Resync does nothing: every change was applied when the watch delivered it.
func (k *keyring) Resync() error { return nil }

func (k *keyring) read(s *corev1.Secret) *record {
	r, err := recordOf(s)
	if err != nil {
		k.log.Warn("ignoring a Secret that is labelled as an API key", "namespace", s.Namespace, "name", s.Name, "error", err)
		return nil
	}
	return r
}

// idOf goes by the Secret's name, which cannot change, and not by its label.
func idOf(s *corev1.Secret) string { return strings.TrimPrefix(s.Name, secretPrefix) }
