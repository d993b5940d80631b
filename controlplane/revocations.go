package controlplane

import (
	"slices"
	"sync"
	"time"
)

// When a gateway's lease is revoked.
const (
	// A gateway that has missed revokeAfterMisses calls in a row, the first of them
	// revokeAfter ago or earlier, is revoked. One slow second is one miss, and an
	// acknowledgement that comes late takes it back.
	revokeAfterMisses = 3
	revokeAfter       = 2 * time.Second
	// One gateway in gatewaysForEachOut may be out at a time, and one in any case.
	gatewaysForEachOut = 10
	// A gateway that has joined again stays out for its lease's duration divided by
	// rejoinQuiet: it lists everything, and serves for a while before it is revoked again.
	rejoinQuiet = 20
	// sayEvery is the time between two warnings in the log about one gateway that is silent.
	sayEvery = time.Minute
)

// revocations decides which gateways are revoked, and when. A revoked gateway
// serves no request from its next renewal until it has listed everything anew, whereas
// the fence that it owes delays one address. So a gateway is revoked only if
//
//   - it has missed several calls in a row, each while another gateway
//     acknowledged: what no gateway answers says nothing about one of them, and a
//     controller that reaches none must not take the data plane down;
//   - few others are out.
//
// The states of one gateway:
//
//	trusted  its last call was acknowledged, or none was made
//	silent   it missed its last calls
//	out      it was revoked, by this controller or another, and has not joined again,
//	         or has joined so short a while ago that it may still list
//
//	trusted ─a miss─▶ silent ─an acknowledgement─▶ trusted
//	silent ─misses enough while others acknowledged, and room─▶ out
//	out ─joined, rested─▶ trusted
//	any ─its lease is over─▶ forgotten
//
// A revocation is noted before its write, which may be applied though its answer was
// an error. If a later list shows the old holder, the gateway stays out, for the
// write may still be applied, and is revoked again after its next miss; if it
// acknowledges first it is trusted, and a write that is applied later makes one more
// than a tenth be out.
//
// It is safe for concurrent use.
type revocations struct {
	mu       sync.Mutex
	standing map[string]*standing // of gateways that are silent or out, by lease name; guarded by mu
	// answered is when each gateway acknowledged last; guarded by mu.
	answered map[string]time.Time
}

// standing is what is known of one gateway that is silent or out.
type standing struct {
	silent bool
	// misses counts the calls that this gateway missed, since it last acknowledged one,
	// while another gateway acknowledged; since is when the first of them was sent.
	misses int
	since  time.Time
	// revoked is the holder that was overwritten; zero if none was.
	revoked Holder
	// back is when a list first showed that it has joined again.
	back time.Time
	// said is when a warning that it is silent was last logged.
	said time.Time
}

// acknowledged notes that a gateway has acknowledged just now.
func (r *revocations) acknowledged(g Gateway) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered == nil {
		r.answered = map[string]time.Time{}
	}
	r.answered[g.Name] = time.Now()
	s := r.standing[g.Name]
	if s == nil {
		return
	}
	if s.revoked == (Holder{}) || s.revoked == g.Holder {
		delete(r.standing, g.Name)
		return
	}
	s.silent, s.misses = false, 0
}

// missed notes that a gateway did not acknowledge a call that was sent at a time, and
// reports whether to log that as a warning. Call it after acknowledged for the calls
// that were made with this one.
func (r *revocations) missed(g Gateway, sent time.Time) (say bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(g.Name)
	s.silent = true
	if say = time.Since(s.said) >= sayEvery; say {
		s.said = time.Now()
	}
	for name, at := range r.answered {
		if name != g.Name && !at.Before(sent) {
			if s.misses == 0 {
				s.since = sent
			}
			s.misses++
			break
		}
	}
	return say
}

// at returns a gateway's standing to be changed. mu is held.
func (r *revocations) at(name string) *standing {
	s := r.standing[name]
	if s == nil {
		s = &standing{}
		if r.standing == nil {
			r.standing = map[string]*standing{}
		}
		r.standing[name] = s
	}
	return s
}

// silent reports whether a gateway missed its last call.
func (r *revocations) silent(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.standing[name]
	return s != nil && s.silent
}

// listed takes in a live list of the gateways that owe fences: which of them have
// joined again, and which are over.
func (r *revocations) listed(gateways []Gateway) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, known := time.Now(), make(map[string]bool, len(gateways))
	for _, g := range gateways {
		known[g.Name] = true
		if g.Holder.Mark == MarkRevoked { // by another controller, or by this one
			s := r.at(g.Name)
			s.revoked, s.back = g.Holder.with(""), time.Time{}
			continue
		}
		s := r.standing[g.Name]
		if s == nil || s.revoked == (Holder{}) || !g.Holder.succeeds(s.revoked) {
			continue
		}
		if s.back.IsZero() {
			s.back, s.misses = now, 0
		}
		if now.Sub(s.back) >= g.Duration/rejoinQuiet {
			s.revoked, s.back = Holder{}, time.Time{}
			if !s.silent {
				delete(r.standing, g.Name)
			}
		}
	}
	for name := range r.standing {
		if !known[name] {
			delete(r.standing, name)
		}
	}
	for name := range r.answered {
		if !known[name] {
			delete(r.answered, name)
		}
	}
}

// due returns the gateways to revoke now, and notes that they are. The gateways are
// those of the last list.
func (r *revocations) due(gateways []Gateway) []Gateway {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := max(1, len(gateways)/gatewaysForEachOut)
	for _, s := range r.standing {
		if s.revoked != (Holder{}) {
			room--
		}
	}
	var out, waiting []Gateway
	for _, g := range gateways {
		s := r.standing[g.Name]
		switch {
		case s == nil || g.Gone || g.Holder.Mark != "" || s.misses < revokeAfterMisses || time.Since(s.since) < revokeAfter:
		case s.revoked == g.Holder: // the write before was not applied, or not yet
			out = append(out, g)
		case s.revoked == (Holder{}):
			waiting = append(waiting, g)
		}
	}
	// The one that is silent for the longest first, so that each has its turn.
	slices.SortFunc(waiting, func(a, b Gateway) int {
		return r.standing[a.Name].since.Compare(r.standing[b.Name].since)
	})
	for _, g := range waiting[:min(max(room, 0), len(waiting))] {
		r.standing[g.Name].revoked = g.Holder
		out = append(out, g)
	}
	return out
}
