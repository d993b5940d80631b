package history

import (
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// giveUp notes that a Sandbox without a binding has given up the pods that it had, and
// returns the claim that it had last; nil if none is known. mu is held.
func (r *Recorder) giveUp(s *v1alpha1.Sandbox, at time.Time) (last *Interval) {
	for _, i := range r.claimsOf(s) {
		if i.GivenUp.IsZero() {
			i.GivenUp = at
			i.settle()
		}
		if last == nil || last.Seen < i.Seen {
			last = i
		}
	}
	return last
}

// givenUpUnseen takes in that a list has a Sandbox with a binding that it was not seen to
// have before, where nothing was heard for a while: if it was ever paused it may have
// hibernated meanwhile, and then given its other claims up.
func (r *Recorder) givenUpUnseen(s *v1alpha1.Sandbox, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := s.Spec.Binding
	if b == nil || !v1alpha1.EverPaused(s) || r.claims[b.ClaimID] != nil && r.claims[b.ClaimID].SandboxUID != "" {
		return
	}
	r.lives[string(s.UID)]++
	for _, i := range r.claimsOf(s) {
		if i.Claim != b.ClaimID && i.GivenUp.IsZero() {
			i.GivenUp = at
			i.settle()
		}
	}
}

// claimsOf are the claims of a Sandbox. mu is held.
func (r *Recorder) claimsOf(s *v1alpha1.Sandbox) (all []*Interval) {
	for _, i := range r.claims {
		if i.SandboxUID == string(s.UID) || i.SandboxUID == "" && i.ID == s.Name {
			all = append(all, i)
		}
	}
	return all
}

// fenced notes what status.fencedAt says: the address on record, which is of one claim, is
// fenced. Each other claim has a fence of its own, also the next one of a sandbox whose end is
// written while its address on record is of the claim before. mu is held.
func (r *Recorder) fenced(s *v1alpha1.Sandbox, gone bool) {
	at, claim := s.Status.FencedAt.Time, s.Status.AddressClaim
	for _, i := range r.claims {
		if i.SandboxUID == string(s.UID) && i.Over.IsZero() && (gone || claim == "" || claim == i.Claim) {
			i.Over, i.overFrom = at, at
		}
	}
}

// listedPods takes in that there are these pods and no other.
func (r *Recorder) listedPods(there map[string]bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.claims {
		if i.free.IsZero() && !there[i.PodUID] {
			i.free = at
			i.settle()
		}
	}
}

// settle makes a claim over whose pod was given up and is let go, if no record says when
// its address was fenced: a pod is let go after that.
func (i *Interval) settle() {
	if !i.Over.IsZero() || i.GivenUp.IsZero() || i.free.IsZero() {
		return
	}
	i.Over, i.overFrom = i.free, i.GivenUp
	if i.Over.Before(i.GivenUp) {
		i.Over = i.GivenUp
	}
}
