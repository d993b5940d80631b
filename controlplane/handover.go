package controlplane

import (
	"context"
	"fmt"
	"sync"
)

// handOver is how a gateway that stops tells a controller the last that it knows about
// use, so that nothing is lost with it and no idle time counts anew. It is safe for
// concurrent use. Its states:
//
//	serving       answers say nothing of an end
//	telling       HandOver was called: answers are final
//	acknowledged  a controller has asked with the cursor of a final answer, so it has it
//
// A final answer that is lost, or one that no controller asks for, leaves it telling:
// the gateway gives up, and its stop raises the floor of idle time. A new controller is
// told the answer by the gateway that remembers it (remember.go).
type handOver struct {
	mu           *sync.Mutex
	telling      bool            // guarded by mu
	given        map[cursor]bool // of final answers; guarded by mu
	acknowledged chan struct{}   // closed by received, under mu
}

func newHandOver() handOver {
	return handOver{mu: &sync.Mutex{}, given: map[cursor]bool{}, acknowledged: make(chan struct{})}
}

func (h *handOver) begun() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.telling
}

// answered notes that a final answer with this cursor is about to be sent.
func (h *handOver) answered(source string, value uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given[cursor{source: source, value: value}] = true
}

// received takes in the cursor that a controller asks with.
func (h *handOver) received(source string, value uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.given[cursor{source: source, value: value}] {
		return
	}
	select {
	case <-h.acknowledged:
	default:
		close(h.acknowledged)
	}
}

// HandOver says in each answer from now on that it is the last, and returns nil when a
// controller has one. Call it when nothing is in use here any more and nothing will be:
// Envoy is gone, all that it had open is noted as used, and no request is answered.
func (s *Server) HandOver(ctx context.Context) error {
	s.last.mu.Lock()
	s.last.telling = true
	s.last.mu.Unlock()
	select {
	case <-s.last.acknowledged:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("telling a controller the last uses: %w", ctx.Err())
	}
}
