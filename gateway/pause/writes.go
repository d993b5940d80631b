package pause

import (
	"context"
	"fmt"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// write sends a patch that pauses or resumes the sandbox, remembers it as this gateway's
// own write, and sets s to the sandbox as written.
func (p *Pauser) write(ctx context.Context, s *v1alpha1.Sandbox, paused bool, patch writes.Patch) error {
	out := &v1alpha1.Sandbox{}
	out.Name = s.Name
	claim := s.Spec.Binding.ClaimID
	err := p.api.Patch(ctx, out, patch.Build())
	switch writes.Judge(err) {
	case writes.Applied:
	case writes.TestFailed, writes.Conflict, writes.Gone:
		return writes.ErrStale
	default:
		return fmt.Errorf("writing that sandbox %s is to be paused or resumed: %w", s.Name, err)
	}
	*s = *out
	p.remember(claim, ownWrite{order: s.Spec.PauseOrder, paused: paused})
	p.cache.Invalidate(s.Name) // after remember: a request that resolves from now on sees the write
	return nil
}

// remember notes a write of the claim's sandbox, unless a later one is noted already: the
// answers to two writes may arrive in the opposite order.
func (p *Pauser) remember(claim string, w ownWrite) {
	p.remembering.Lock()
	defer p.remembering.Unlock()
	last, ok := p.own.Peek(claim)
	if !ok || last.order < w.order || last.order == w.order && w.awake {
		p.own.Add(claim, w)
	}
}

// knowsAwake reports whether the freezer has carried out an order of this gateway to
// continue the sandbox's processes since it was last resumed.
func (p *Pauser) knowsAwake(s *v1alpha1.Sandbox) bool {
	if s.Spec.Binding == nil {
		return false
	}
	w, ok := p.own.Get(s.Spec.Binding.ClaimID)
	return ok && w.awake && w.order == s.Spec.PauseOrder
}
