package reconcilers_test

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// lagging shows what a watch brings later than the API server sent it. Other
// requests pass.
type lagging struct {
	base http.RoundTripper
	by   time.Duration
}

func (l lagging) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.base.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "true" {
		answer.Body = newLateBody(answer.Body, l.by)
	}
	return answer, err
}

// lateBody hands on what it reads after a while. One goroutine reads; it ends
// when the body is closed.
type lateBody struct {
	body   io.ReadCloser
	chunks chan lateChunk
	rest   []byte
	closed chan struct{}
	once   sync.Once
}

type lateChunk struct {
	data []byte
	due  time.Time
	err  error
}

func newLateBody(body io.ReadCloser, by time.Duration) *lateBody {
	b := &lateBody{body: body, chunks: make(chan lateChunk, 100_000), closed: make(chan struct{})}
	go func() {
		for {
			buffer := make([]byte, 64<<10)
			n, err := body.Read(buffer)
			select {
			case b.chunks <- lateChunk{buffer[:n], time.Now().Add(by), err}:
			case <-b.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return b
}

func (b *lateBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		var c lateChunk
		select {
		case c = <-b.chunks:
		case <-b.closed:
			return 0, io.ErrClosedPipe
		}
		timer := time.NewTimer(time.Until(c.due))
		select {
		case <-timer.C:
		case <-b.closed:
			timer.Stop()
			return 0, io.ErrClosedPipe
		}
		if c.err != nil {
			return 0, c.err
		}
		b.rest = c.data
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *lateBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.body.Close()
}
