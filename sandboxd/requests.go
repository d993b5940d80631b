package sandboxd

import (
	"context"
	"net/http"
	"sync"
)

// requests has the clients' requests that are being served. Its zero value has none; it is
// safe for concurrent use.
type requests struct {
	mu      sync.Mutex
	serving map[*http.Request]context.CancelFunc
}

// begin counts a request until end, and returns it with a context that cancel ends.
func (q *requests) begin(r *http.Request) (counted *http.Request, end func()) {
	ctx, cancel := context.WithCancel(r.Context())
	counted = r.WithContext(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.serving == nil {
		q.serving = map[*http.Request]context.CancelFunc{}
	}
	q.serving[counted] = cancel
	return counted, func() {
		cancel()
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.serving, counted)
	}
}

// count returns how many requests are being served.
func (q *requests) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.serving)
}

// cancel ends the contexts of all requests that are being served.
func (q *requests) cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, cancel := range q.serving {
		cancel()
	}
}
