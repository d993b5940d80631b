package process

import (
	"sync"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// hub sends the output of one process to all attached clients. publish waits for the slowest
// of them: a slow reader slows the process down by its full pipe, and nothing is buffered
// without bound. A client that does not read at all is cut (unread.go), and holds the process
// up no longer than that takes. Without an attached client output is dropped.
type hub struct {
	mu    sync.Mutex // guards subs and ended; never held while waiting
	subs  map[*subscription]struct{}
	ended *processpb.ProcessEvent // the end event; nil before the end
}

type subscription struct {
	events chan *processpb.ProcessEvent // closed at the end of the process
	gone   chan struct{}                // closed when the subscriber leaves or is cut
	leave  sync.Once
}

// subscribe attaches a client. If the process has ended, the channel is closed already.
func (h *hub) subscribe() *subscription {
	s := &subscription{events: make(chan *processpb.ProcessEvent), gone: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		close(s.events)
		return s
	}
	if h.subs == nil {
		h.subs = map[*subscription]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s
}

// unsubscribe detaches a client; it may be called again.
func (h *hub) unsubscribe(s *subscription) {
	s.leave.Do(func() { close(s.gone) })
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

// publish sends an event to all clients that are attached now. Events of one caller keep
// their order. It must not be called after end.
func (h *hub) publish(event *processpb.ProcessEvent) {
	h.mu.Lock()
	subs := make([]*subscription, 0, len(h.subs))
	for s := range h.subs {
		subs = append(subs, s)
	}
	h.mu.Unlock()
	for _, s := range subs {
		select {
		case s.events <- event:
		case <-s.gone:
		}
	}
}

// end records the end event and closes all subscriptions.
func (h *hub) end(event *processpb.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = event
	for s := range h.subs {
		close(s.events)
	}
	h.subs = nil
}

// endEvent returns the end event of a process that has ended; nil before.
func (h *hub) endEvent() *processpb.ProcessEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}
