package watch

import (
	"errors"
	"log/slog"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/seal"
)

// Errors of Reveal. Sandboxes see them.
var (
	errNoSecret = errors.New("there is no such secret")
	errSealed   = errors.New("it cannot be read, set its value anew")
)

// secrets are those of all namespaces, as a watch has shown them.
type secrets struct {
	open func(seal.Place, []byte) ([]byte, error)
	log  *slog.Logger

	mu     sync.Mutex
	values map[client.ObjectKey]func() (string, error) // guarded by mu; each opens its value once
	done   bool                                        // listed is closed

	listed chan struct{} // closed with the first list
}

func newSecrets(open func(seal.Place, []byte) ([]byte, error), log *slog.Logger) *secrets {
	return &secrets{open: open, log: log, values: map[client.ObjectKey]func() (string, error){}, listed: make(chan struct{})}
}

// reveal returns the value of a namespace's secret.
func (s *secrets) reveal(namespace, name string) (string, error) {
	s.mu.Lock()
	value := s.values[client.ObjectKey{Namespace: namespace, Name: v1alpha1.SecretObject(name)}]
	s.mu.Unlock()
	if value == nil {
		return "", errNoSecret
	}
	return value()
}

// valueOf opens a secret's value when it is first asked for. An object whose name is not its
// secret's own is found by no name, or does not open.
func (s *secrets) valueOf(x *v1alpha1.SandboxSecret) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		value, err := s.open(seal.OfSecret(x.Namespace, x.Spec.Name), x.Spec.Sealed)
		if err != nil {
			s.log.Error("a secret cannot be opened", "namespace", x.Namespace, "secret", x.Spec.Name, "error", err)
			return "", errSealed
		}
		return string(value), nil
	})
}

// Add implements cache.ReflectorStore, as the methods below do.
func (s *secrets) Add(obj any) error { return s.Update(obj) }

// Update takes in a secret.
func (s *secrets) Update(obj any) error {
	x, ok := obj.(*v1alpha1.SandboxSecret)
	if !ok {
		return errType
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[client.ObjectKeyFromObject(x)] = s.valueOf(x)
	return nil
}

// Delete takes in that a secret is gone.
func (s *secrets) Delete(obj any) error {
	x, ok := obj.(*v1alpha1.SandboxSecret)
	if !ok {
		return errType
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, client.ObjectKeyFromObject(x))
	return nil
}

// Replace takes in a list.
func (s *secrets) Replace(objs []any, _ string) error {
	all := map[client.ObjectKey]func() (string, error){}
	for _, obj := range objs {
		x, ok := obj.(*v1alpha1.SandboxSecret)
		if !ok {
			return errType
		}
		all[client.ObjectKeyFromObject(x)] = s.valueOf(x)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = all
	if !s.done {
		s.done = true
		close(s.listed)
	}
	return nil
}

// Resync does nothing.
func (*secrets) Resync() error { return nil }
