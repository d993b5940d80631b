package process

import (
	"context"
	"sync"
	"time"
)

// holding keeps processes from starting and their deadlines from passing while the
// sandbox is frozen. Its zero value holds nothing.
type holding struct {
	gate sync.RWMutex // read-locked around each fork, locked while held

	mu        sync.Mutex // guards the rest
	held      bool
	deadlines map[*deadline]struct{} // that have not passed
}

// deadline calls a function when its time is up, not counting the time held.
type deadline struct {
	at    time.Time     // while it counts
	left  time.Duration // while it is held
	timer *time.Timer
}

// Hold makes starts of processes wait and stops the time of deadlines, until Release.
// When it returns none is being started. Call it again only after Release.
func (s *Service) Hold() {
	h := &s.holding
	h.gate.Lock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = true
	for d := range h.deadlines {
		d.timer.Stop()
		d.left = time.Until(d.at)
	}
}

// Release undoes a Hold: deadlines get the time back that they were held.
func (s *Service) Release() {
	h := &s.holding
	h.mu.Lock()
	h.held = false
	for d := range h.deadlines {
		d.at = time.Now().Add(d.left)
		d.timer.Reset(d.left)
	}
	h.mu.Unlock()
	h.gate.Unlock()
}

// at calls f once when the time has come; stop forgets it. f does not run while held.
func (h *holding) at(when time.Time, f func()) (stop func()) {
	d := &deadline{at: when}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadlines == nil {
		h.deadlines = map[*deadline]struct{}{}
	}
	h.deadlines[d] = struct{}{}
	forget := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held {
			return false // it passed just before: Release sets it anew
		}
		delete(h.deadlines, d)
		return true
	}
	d.timer = time.AfterFunc(time.Until(when), func() {
		if forget() {
			f()
		}
	})
	if h.held {
		d.timer.Stop()
		d.left = time.Until(when)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		d.timer.Stop()
		delete(h.deadlines, d)
	}
}

// starting waits while held. The caller forks and then calls forked, unless it got an
// error: that of ctx, whose request is over.
func (h *holding) starting(ctx context.Context) (forked func(), err error) {
	h.gate.RLock()
	if err := ctx.Err(); err != nil {
		h.gate.RUnlock()
		return nil, err
	}
	return h.gate.RUnlock, nil
}
