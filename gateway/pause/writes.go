package pause

import (
	"context"
	"fmt"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

// write sends the patch, remembers what it says, and makes s the sandbox as written.
func (p *Pauser) write(ctx context.Context, s *v1alpha1.Sandbox, paused bool, patch jsonpatch.Patch) error {
	out := &v1alpha1.Sandbox{}
	out.Name = s.Name
	err := p.api.Patch(ctx, out, patch.Build())
	switch jsonpatch.Judge(err) {
	case jsonpatch.Applied:
	case jsonpatch.TestFailed, jsonpatch.Conflict, jsonpatch.Gone:
		return ErrChanged
	default:
		return fmt.Errorf("writing that sandbox %s is to be paused or resumed: %w", s.Name, err)
	}
	*s = *out
	p.remember(s.Spec.Binding.ClaimID, write{s.Generation, paused})
	p.cache.Invalidate(s.Name) // after that: a request that resolves from now on finds it so
	return nil
}

// remember notes a write of the claim's sandbox. Of two that follow each other closely
// the answer to the first may come last.
func (p *Pauser) remember(claim string, w write) {
	p.remembering.Lock()
	defer p.remembering.Unlock()
	if last, ok := p.own.Peek(claim); !ok || last.generation < w.generation {
		p.own.Add(claim, w)
	}
}
