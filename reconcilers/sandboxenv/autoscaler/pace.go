package autoscaler

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
)

// Time between two looks at an env whose autoscaling is enabled; up to a fifth is added at
// random. It is the shorter one after a look that saw or wrote something new, and doubles
// with each look that did not, up to the longer one. So a cooldown, a threshold or an idle
// timeout that passes is noticed late by no more than the time that nothing has happened
// for, and by 72 s at most. A change of the env or of its pools is looked at when it comes.
const (
	shortest = 5 * time.Second
	longest  = time.Minute
)

// pace remembers what the last look at each env saw. It is safe for concurrent use; the
// zero value remembers nothing.
type pace struct {
	mu   sync.Mutex // guards envs
	envs map[types.NamespacedName]*looked
}

type looked struct {
	generation int64
	members    []Member
	wait       time.Duration
}

// next is the time until the next look at an env, whose members are as they were read now.
// wrote: this look wrote something.
func (p *pace) next(env types.NamespacedName, generation int64, members []sized, wrote bool) time.Duration {
	now := &looked{generation: generation, members: make([]Member, len(members)), wait: shortest}
	for i := range members {
		now.members[i] = members[i].Member
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.envs[env]; was != nil && !wrote && was.generation == generation && slices.EqualFunc(was.members, now.members, alike) {
		now.wait = backoff.Next(was.wait, shortest, longest)
	}
	if p.envs == nil {
		p.envs = map[types.NamespacedName]*looked{}
	}
	p.envs[env] = now
	return resync.Between(now.wait, now.wait+now.wait/5)
}

func (p *pace) forget(env types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.envs, env)
}

// alike: nothing has happened to a member between two looks. The time of its last create is
// the time of a poll less an age, and so differs a little each time.
func alike(a, b Member) bool {
	if a.LastCreate.Sub(b.LastCreate).Abs() > time.Second {
		return false
	}
	a.LastCreate = b.LastCreate
	return a == b
}
