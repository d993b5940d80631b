//go:build failpoints

package failpoint

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// poll is how often a watch that is being delayed looks at the clock and at the
// point's file.
const poll = 10 * time.Millisecond

// Watches returns a wrapper for the transport of an API client. What a watch
// brings reaches the client as much later as the point's delay says at that
// moment, in its order; requests that are no watches are left alone. The
// connection itself is read as fast as ever, so the API server notices nothing,
// and what was held back comes at once when the delay ends.
func Watches(point string) func(http.RoundTripper) http.RoundTripper {
	if folder == "" {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return &watches{next, point} }
}

type watches struct {
	next  http.RoundTripper
	point string
}

// RoundTrip implements http.RoundTripper.
func (w *watches) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.next.RoundTrip(r)
	if err != nil || !isWatch(r) {
		return res, err
	}
	l := &late{body: res.Body, point: w.point, more: make(chan struct{}, 1), closed: make(chan struct{})}
	go l.fill()
	res.Body = l
	return res, nil
}

// WrappedRoundTripper lets client-go look through the wrapper.
func (w *watches) WrappedRoundTripper() http.RoundTripper { return w.next }

func isWatch(r *http.Request) bool {
	switch r.URL.Query().Get("watch") {
	case "true", "1":
		return true
	}
	return false
}

// late is the body of a watch. One goroutine (fill) reads it and adds to the
// queue until the body ends or is closed; the client's takes from the queue
// what is old enough.
type late struct {
	body   io.ReadCloser
	point  string
	more   chan struct{} // capacity 1: the queue has grown
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	queue []chunk
}

// chunk is what one read of the body brought. The last one has an error.
type chunk struct {
	data []byte
	err  error
	came time.Time
}

func (l *late) fill() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.body.Read(buffer)
		l.mu.Lock()
		l.queue = append(l.queue, chunk{append([]byte(nil), buffer[:n]...), err, time.Now()})
		l.mu.Unlock()
		select {
		case l.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// Read waits for the oldest chunk to be old enough. It has one caller at a time.
func (l *late) Read(p []byte) (int, error) {
	for {
		n, held, err := l.take(p)
		if n > 0 || err != nil {
			return n, err
		}
		if !l.pause(held) {
			return 0, http.ErrBodyReadAfterClose
		}
	}
}

// take returns what is old enough; if that is nothing, whether something is
// held back.
func (l *late) take(p []byte) (n int, held bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		c := &l.queue[0]
		if time.Since(c.came) < Delay(l.point) {
			return 0, true, nil
		}
		if len(c.data) > 0 {
			n = copy(p, c.data)
			c.data = c.data[n:]
			return n, false, nil
		}
		if c.err != nil {
			return 0, false, c.err // stays: every later read ends so too
		}
		l.queue = l.queue[1:]
	}
	return 0, false, nil
}

// pause waits until there may be something to take: by the clock while something
// is held back, since what comes behind it cannot overtake. It returns false
// once the body is closed.
func (l *late) pause(held bool) bool {
	more, tick := l.more, (<-chan time.Time)(nil)
	if held {
		more, tick = nil, time.After(poll)
	}
	select {
	case <-l.closed:
		return false
	case <-tick:
	case <-more:
	}
	return true
}

// Close ends the reads of both sides. What was held back is lost, as it is
// when a connection breaks.
func (l *late) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.body.Close()
}
