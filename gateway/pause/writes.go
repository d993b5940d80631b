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
	claim := s.Spec.Binding.ClaimID
	err := p.api.Patch(ctx, out, patch.Build())
	switch jsonpatch.Judge(err) {
	case jsonpatch.Applied:
	case jsonpatch.TestFailed, jsonpatch.Conflict, jsonpatch.Gone:
		return ErrChanged
	default:
		return fmt.Errorf("writing that sandbox %s is to be paused or resumed: %w", s.Name, err)
	}
	*s = *out
	p.remember(claim, write{generation: s.Generation, paused: paused})
	p.cache.Invalidate(s.Name) // after that: a request that resolves from now on finds it so
	return nil
}

// remember notes a write of the claim's sandbox. Of two that follow each other closely
// the answer to the first may come last.
func (p *Pauser) remember(claim string, w write) {
	p.remembering.Lock()
	defer p.remembering.Unlock()
	last, ok := p.own.Peek(claim)
	if !ok || last.generation < w.generation || last.generation == w.generation && w.awake {
		p.own.Add(claim, w)
	}
}

// woke reports whether this gateway has had the freezer let the sandbox run since its
// spec is what it is.
func (p *Pauser) woke(s *v1alpha1.Sandbox) bool {
	if s.Spec.Binding == nil {
		return false
	}
	w, ok := p.own.Get(s.Spec.Binding.ClaimID)
	return ok && w.awake && w.generation == s.Generation
}
