package process

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// holding keeps processes from starting and their deadlines from passing while the
// sandbox is frozen. Its zero value holds nothing.
//
//	open ─Hold─▶ closing: starts wait ─no fork is under way─▶ held: deadlines stand still too
//	  ▲             │ its context ends                            │
//	  └─────────────┴──────────────── Continue ──────────────────┘
type holding struct {
	mu        sync.Mutex    // guards the rest
	opens     chan struct{} // closed when starts may go on; nil while open
	forking   int
	forked    chan struct{} // closed when forking turns 0; nil unless a Hold waits for that
	held      bool
	deadlines map[*deadline]struct{} // those that have not passed
}

// deadline calls a function when its time has passed, not counting the time held.
type deadline struct {
	at    time.Time     // while not held
	left  time.Duration // while held
	timer *time.Timer
}

// Hold makes starts of processes wait and stops the time of deadlines, until Continue. When
// it returns nil, no process is being started. It waits for starts that are under way; if
// ctx ends before, it returns an error and holds nothing. Call it again only after Continue.
func (s *Service) Hold(ctx context.Context) error {
	h := &s.holding
	if err := h.close(ctx); err != nil {
		return fmt.Errorf("waiting for processes that are being started: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = true
	for d := range h.deadlines {
		d.timer.Stop()
		d.left = time.Until(d.at)
	}
	return nil
}

// close makes starts wait, and returns nil when no fork is under way.
func (h *holding) close(ctx context.Context) error {
	h.mu.Lock()
	h.opens = make(chan struct{})
	if h.forking == 0 {
		h.mu.Unlock()
		return nil
	}
	forked := make(chan struct{})
	h.forked = forked
	h.mu.Unlock()
	select {
	case <-forked:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forked = nil
	h.open()
	return ctx.Err()
}

// open lets starts go on. mu is held.
func (h *holding) open() {
	close(h.opens)
	h.opens = nil
}

// Continue undoes a Hold: deadlines get the time back that they were held.
func (s *Service) Continue() {
	h := &s.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = false
	for d := range h.deadlines {
		d.at = time.Now().Add(d.left)
		d.timer.Reset(d.left)
	}
	h.open()
}

// at calls f once when the time has come, but not while held; stop cancels that.
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
			return false // the deadline passed just before the Hold: Continue starts its timer again
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

// starting waits until a process may be started, or returns the error of ctx. The caller then
// forks and calls forked.
func (h *holding) starting(ctx context.Context) (forked func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h.mu.Lock()
		opens := h.opens
		if opens == nil {
			h.forking++
			h.mu.Unlock()
			return h.endFork, nil
		}
		h.mu.Unlock()
		select {
		case <-opens:
		case <-ctx.Done():
		}
	}
}

func (h *holding) endFork() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.forking--; h.forking == 0 && h.forked != nil {
		close(h.forked)
		h.forked = nil
	}
}
