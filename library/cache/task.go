package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitTask waits for one action on one object, once. Its methods are safe for concurrent
// use. The package comment has its states.
type WaitTask[T client.Object] struct {
	waitKind[T]
	ctx context.Context
	key WaitKey
	c   *Cache

	mu         sync.Mutex // guards the rest
	begun      bool       // Wait was called
	isReleased bool
	hook       *hook // while held
	released   chan struct{}
	forget     func() bool // stops the AfterFunc that calls Release when ctx ends
}

// waitKind has what differs between the kinds of tasks.
type waitKind[T client.Object] struct {
	action WaitAction
	// informed reads from the informer, live from the API server.
	informed, live func(context.Context) (T, error)
	// reached reports whether the object is in the state that the task waits for; an error
	// means that it cannot reach that state any more.
	reached func(T) (bool, error)
	// describe describes the object's state for an error's text.
	describe func(T) string
}

func newWaitTask[T client.Object](ctx context.Context, c *Cache, key WaitKey, kind waitKind[T]) *WaitTask[T] {
	return &WaitTask[T]{waitKind: kind, ctx: ctx, key: key, c: c, released: make(chan struct{})}
}

// acquire takes the hook, until Release or the end of the task's context.
func (t *WaitTask[T]) acquire() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ctx.Err(); err != nil {
		return t.errorOf(err)
	}
	if err := t.hold(); err != nil {
		return err
	}
	t.forget = context.AfterFunc(t.ctx, t.Release)
	return nil
}

// hold takes the hook. mu is held.
func (t *WaitTask[T]) hold() error {
	if err := t.c.usable(); err != nil {
		return t.errorOf(err)
	}
	if t.key.UID == "" {
		return t.errorOf(errors.New("it has no UID: it was not read from the API server"))
	}
	h, err := t.c.hooks.acquire(t.key, t.action)
	if err != nil {
		return t.errorOf(err)
	}
	t.hook = h
	return nil
}

// Release releases the hook, if the task holds it, and ends a Wait that is under way. It may
// be called several times, and need not be called after Wait.
func (t *WaitTask[T]) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isReleased {
		return
	}
	t.isReleased = true
	close(t.released)
	if t.hook != nil {
		t.c.hooks.leave(t.key, t.hook)
	}
	if t.forget != nil {
		t.forget()
	}
}

// Wait waits until the object has reached the state, and returns a copy of it. An error is
// ErrGone, ErrFailed, ErrStopped, ErrWaitTaskConflict, ErrWaitTaskUsed,
// context.DeadlineExceeded after timeout, or the error of the context with which the task was
// made. Wait releases the task. Call it once.
func (t *WaitTask[T]) Wait(timeout time.Duration) (T, error) {
	var none T
	h, err := t.begin()
	if err != nil {
		return none, err
	}
	defer t.Release()
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	o, err := t.wait(ctx, h)
	if err != nil {
		return none, t.errorOf(err)
	}
	return o, nil
}

// begin puts the task into its state waiting.
func (t *WaitTask[T]) begin() (*hook, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil { // the end of ctx has released the task
		return nil, t.errorOf(t.ctx.Err())
	}
	if t.begun || t.isReleased {
		return nil, t.errorOf(ErrWaitTaskUsed)
	}
	t.begun = true
	if t.hook == nil {
		if err := t.hold(); err != nil {
			return nil, err
		}
	}
	return t.hook, nil
}

// wait reads the object again and again until it has reached the state. ctx has the time
// limit.
func (t *WaitTask[T]) wait(ctx context.Context, h *hook) (T, error) {
	var none T
	reads := newLiveReads(ctx, t.live)
	poll := time.NewTicker(t.c.poll)
	defer poll.Stop()
	var last string
	var readErr error
	asked := false
	check := func(o T) (bool, error) {
		last = t.describe(o)
		return t.reached(o)
	}
	for {
		changed, gone := t.c.hooks.next(h) // before the read: see "Why no change is missed" in the package comment
		if gone {
			return none, ErrGone
		}
		o, err := t.informed(ctx)
		switch {
		case err == nil && o.GetUID() == t.key.UID:
			if done, err := check(o); done || err != nil {
				return o, err
			}
		case err == nil || apierrors.IsNotFound(err): // the object is gone, or the informer is behind
			if !asked {
				asked = true
				reads.begin()
			}
		default:
			return none, err
		}
		select {
		case <-changed:
		case <-poll.C:
			reads.begin()
		case r := <-reads.done:
			reads.underWay = false
			switch readErr = r.err; {
			case r.err == nil && r.o.GetUID() != t.key.UID, apierrors.IsNotFound(r.err):
				return none, ErrGone
			case r.err == nil:
				if done, err := check(r.o); done || err != nil {
					return r.o, err
				}
			}
		case <-t.c.stopped:
			return none, t.c.usable()
		case <-t.released:
			if err := t.ctx.Err(); err != nil {
				return none, err
			}
			return none, ErrWaitTaskUsed
		case <-ctx.Done():
			if readErr != nil {
				return none, fmt.Errorf("%w (%s; reading it: %w)", ctx.Err(), last, readErr)
			}
			return none, fmt.Errorf("%w (%s)", ctx.Err(), last)
		}
	}
}

func (t *WaitTask[T]) errorOf(err error) error {
	return fmt.Errorf("waiting for %s %s (%s): %w", t.key.Kind, t.key.Name, t.action, err)
}

// liveReads reads from the API server, one read at a time, in goroutines of its own, so that
// a task whose read is not answered still gets the informer's changes. Only one goroutine
// uses it.
type liveReads[T any] struct {
	ctx      context.Context
	read     func(context.Context) (T, error)
	underWay bool
	done     chan liveRead[T]
}

type liveRead[T any] struct {
	o   T
	err error
}

func newLiveReads[T any](ctx context.Context, read func(context.Context) (T, error)) *liveReads[T] {
	return &liveReads[T]{ctx: ctx, read: read, done: make(chan liveRead[T], 1)}
}

// begin begins a read, unless one is under way. The read ends with the context.
func (l *liveReads[T]) begin() {
	if l.underWay {
		return
	}
	l.underWay = true
	go func() {
		o, err := l.read(l.ctx)
		l.done <- liveRead[T]{o, err}
	}()
}
