package index

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routing"
)

// pausedRest is the time between two live reads of a sandbox that was found paused.
const pausedRest = 100 * time.Millisecond

// sharedReads let the requests of one caller for one sandbox share live reads. It is safe
// for concurrent use.
//
// A request is answered by a read that began after it came, never by the one under way:
// so the read shows all that any gateway has told the client before. Of each
// sandbox one read is under way for a caller, and all requests that came since share the next:
//
//	none ─request─▶ reading ─answered, none came since─▶ none
//	                  │  ▲
//	                  │  └─rested, if some came since
//	                  └─answered: paused─▶ resting
//
// A paused sandbox is read at most each pausedRest: a client that asks for it all the time
// does not use up the reads that others need, and waits a little for each answer.
type sharedReads struct {
	read    func(ctx context.Context, key, id string) (routing.Answer, error)
	ctx     context.Context // of all reads
	cancel  context.CancelFunc
	running sync.WaitGroup // reads and rests

	mu     sync.Mutex             // guards the rest, and next of what is in open
	open   map[readOf]*sharedRead // the last read that began
	closed bool                   // running gets no more
}

type readOf struct{ key, id string }

type sharedRead struct {
	next   *sharedRead   // for the requests that came since this one began
	done   chan struct{} // closed when the rest is set
	answer routing.Answer
	err    error
}

func newSharedReads(read func(ctx context.Context, key, id string) (routing.Answer, error)) *sharedReads {
	x := &sharedReads{read: read, open: map[readOf]*sharedRead{}}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// close ends all reads and rests, and returns when they are over. A later resolve fails.
func (x *sharedReads) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.cancel()
	x.running.Wait()
}

// resolve returns the answer of a read that begins from now on.
func (x *sharedReads) resolve(ctx context.Context, key, id string) (routing.Answer, error) {
	r := x.join(readOf{key, id})
	if r == nil {
		return routing.Answer{}, fmt.Errorf("reading sandbox %s: %w", id, context.Canceled)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return routing.Answer{}, fmt.Errorf("reading sandbox %s: %w", id, ctx.Err())
	}
	a := r.answer
	if a.Route != nil { // the caller may change its own
		route := *a.Route
		a.Route = &route
	}
	return a, r.err
}

// join returns a read that begins from now on; nil after close.
func (x *sharedReads) join(of readOf) *sharedRead {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	last := x.open[of]
	switch {
	case last == nil:
		r := &sharedRead{done: make(chan struct{})}
		x.open[of] = r
		x.running.Go(func() { x.run(of, r) })
		return r
	case last.next == nil:
		last.next = &sharedRead{done: make(chan struct{})}
	}
	return last.next
}

// run reads until no request has come since the last read began.
func (x *sharedReads) run(of readOf, r *sharedRead) {
	for r != nil {
		r.answer, r.err = x.read(x.ctx, of.key, of.id)
		close(r.done)
		if r.err == nil && r.answer.State == routing.Paused {
			backoff.Sleep(x.ctx, pausedRest)
		}
		r = x.following(of, r)
	}
}

// following returns the read that follows r, and makes it the last; nil if there is none.
func (x *sharedReads) following(of readOf, r *sharedRead) *sharedRead {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.next == nil {
		delete(x.open, of)
	} else {
		x.open[of] = r.next
	}
	return r.next
}
