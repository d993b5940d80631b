package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
)

// told is what the last controller told this gateway of its memory, besides claims.
type told struct {
	mu     sync.Mutex
	holder string    // of the lease when it was told; guarded by mu
	floor  time.Time // guarded by mu
	counts []string  // the gateways that the controller counts on; guarded by mu
}

// answer returns what was told under the lease of this holder, nil if nothing was.
func (t *told) answer(holder string) *controlplanepb.Memory {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != holder {
		return nil
	}
	return &controlplanepb.Memory{FloorAgeNanos: int64(time.Since(t.floor)), Gateways: t.counts}
}

// set takes in what is told. A floor never sinks: what was lost stays lost.
func (t *told) set(holder string, m *controlplanepb.Memory) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := time.Now().Add(-max(time.Duration(m.GetFloorAgeNanos()), 0)); at.After(t.floor) {
		t.floor = at
	}
	t.holder, t.counts = holder, m.GetGateways()
}

// Remember implements the gRPC service.
func (s *Server) Remember(ctx context.Context, r *controlplanepb.RememberRequest) (*controlplanepb.RememberResponse, error) {
	s.o.Member.Reached()
	holder := s.o.Member.Holder()
	seen, used := make([]Sighting, len(r.GetSeen())), make([]Activity, len(r.GetUsed()))
	for i, one := range r.GetSeen() {
		seen[i] = Sighting{one.GetSandboxId(), one.GetClaimId(), time.Duration(one.GetAgeNanos()), one.GetPauseOrder()}
	}
	for i, one := range r.GetUsed() {
		used[i] = Activity{one.GetSandboxId(), one.GetClaimId(), time.Duration(one.GetAgeNanos())}
	}
	s.o.Activity.Remember(seen, used)
	if r.GetTold() != nil && ctx.Err() == nil { // else the controller may have told something since
		s.told.set(holder, r.GetTold())
	}
	return &controlplanepb.RememberResponse{Holder: holder}, nil
}

func sightingsProto(seen []Sighting) []*controlplanepb.Sighting {
	out := make([]*controlplanepb.Sighting, len(seen))
	for i, s := range seen {
		out[i] = &controlplanepb.Sighting{SandboxId: s.SandboxID, ClaimId: s.ClaimID, AgeNanos: int64(s.Age), PauseOrder: s.PauseOrder}
	}
	return out
}
