package console

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// bell tells pages that something has changed.
type bell struct {
	mu    sync.Mutex
	rung  chan struct{} // closed and replaced at each change
	asked time.Time     // when a page last asked for something
}

func newBell() *bell { return &bell{rung: make(chan struct{})} }

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung)
	b.rung = make(chan struct{})
}

// next is closed at the next change.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

func (b *bell) listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = time.Now()
}

// heard reports whether a page asked within d.
func (b *bell) heard(d time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.asked) < d
}

const (
	// atMost bounds how often a page is told of changes, and so how often it reads.
	atMost = time.Second
	// atLeast has ages on the page grow while nothing changes.
	atLeast = 10 * time.Second
)

// changes is a stream of Server-Sent Events without content: a page reads again what it
// shows.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for {
		rung := s.bell.next()
		if _, err := fmt.Fprint(w, "event: changed\ndata:\n\n"); err != nil || out.Flush() != nil {
			return
		}
		s.bell.listen()
		quiet := time.NewTimer(atMost)
		select {
		case <-r.Context().Done():
			quiet.Stop()
			return
		case <-quiet.C:
		}
		select {
		case <-r.Context().Done():
			return
		case <-rung:
		case <-time.After(atLeast - atMost):
		}
	}
}
