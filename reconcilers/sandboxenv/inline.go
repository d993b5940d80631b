package sandboxenv

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// inLine remembers of each env which versions of it and of its pools needed no write, so
// that the resync of a settled env renders nothing. What a version needs follows from the
// objects alone: it is forgotten with a restart, and nothing is lost. It is safe for
// concurrent use; the zero value remembers nothing.
type inLine struct {
	mu   sync.Mutex // guards envs
	envs map[types.NamespacedName]map[string]versions
}

// versions are what the state of a member's pool was judged by. The API server gives each
// write a new resourceVersion, also those of two objects of one name.
type versions struct {
	env, pool string
	template  string // empty without one
}

// has reports whether the member's pool was in line when all was as it is now.
func (l *inLine) has(env types.NamespacedName, member string, v versions) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.envs[env][member] == v
}

func (l *inLine) keep(env types.NamespacedName, member string, v versions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.envs == nil {
		l.envs = map[types.NamespacedName]map[string]versions{}
	}
	if l.envs[env] == nil {
		l.envs[env] = map[string]versions{}
	}
	l.envs[env][member] = v
}

// forget drops all but the members that an env has; an env that is gone has none.
func (l *inLine) forget(env types.NamespacedName, members map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.envs[env] {
		if !members[name] {
			delete(l.envs[env], name)
		}
	}
	if len(l.envs[env]) == 0 {
		delete(l.envs, env)
	}
}
