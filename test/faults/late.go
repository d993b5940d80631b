package faults

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// LateLimit is when a late write is sent though nothing has followed it.
const LateLimit = 2 * time.Second

// late is the writes whose client believes that they failed. The transport's
// mutex guards the map and the stragglers' counts.
type late struct {
	byObject map[string][]*straggler
	sending  sync.WaitGroup
}

// straggler is a late write. The goroutine that takes it out of the map sends it.
type straggler struct {
	object   string
	overtake int // calls about the object that are still to be answered first
	send     func()
	timer    *time.Timer
}

// delay keeps a write back until n calls about its object have overtaken it.
func (t *Transport) delay(r *http.Request, body []byte, s *Strike, n int) {
	copied := r.Clone(context.WithoutCancel(r.Context()))
	copied.Body = io.NopCloser(bytes.NewReader(body))
	one := &straggler{object: s.Object, overtake: n, send: func() {
		if answer, err := t.send(copied, s); err == nil {
			discard(answer)
		}
	}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late.sending.Add(1)
	t.late.byObject[s.Object] = append(t.late.byObject[s.Object], one)
	one.timer = time.AfterFunc(LateLimit, func() { t.sendDue(func(o *straggler) bool { return o == one }) })
}

// overtaken is called before each call about an object is passed on, and after
// it was answered (a late one never is). It sends what is due then, before it
// returns.
func (t *Transport) overtaken(object string, answered bool) {
	t.mu.Lock()
	waiting := t.late.byObject[object]
	if answered {
		for _, s := range waiting {
			s.overtake--
		}
	}
	none := len(waiting) == 0
	t.mu.Unlock()
	if !none {
		t.sendDue(func(s *straggler) bool { return s.object == object && s.overtake <= 0 })
	}
}

// Flush sends every late write and returns when all have been answered.
func (t *Transport) Flush() {
	t.sendDue(func(*straggler) bool { return true })
	t.late.sending.Wait()
}

// sendDue takes the stragglers that are due, and sends them.
func (t *Transport) sendDue(due func(*straggler) bool) {
	t.mu.Lock()
	var out []*straggler
	for object, waiting := range t.late.byObject {
		rest := slices.DeleteFunc(slices.Clone(waiting), due)
		if len(rest) == len(waiting) {
			continue
		}
		for _, s := range waiting {
			if due(s) {
				out = append(out, s)
			}
		}
		if t.late.byObject[object] = rest; len(rest) == 0 {
			delete(t.late.byObject, object)
		}
	}
	t.mu.Unlock()
	for _, s := range out {
		s.timer.Stop()
		s.send()
		t.late.sending.Done()
	}
}
