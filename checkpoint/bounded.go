package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrStuck says that the folder's file system does not answer, as a network share whose
// server is gone. The call may still be carried out when it answers again.
var ErrStuck = errors.New("the store of archives does not answer")

const (
	// maxPuts bounds the calls of Put under way, and maxCalls all others, with those that
	// were given up and whose system call has not returned. Each has a thread.
	maxPuts, maxCalls = 64, 32
	// callTimeout bounds calls that need few system calls, and listTimeout those that need
	// some for each file. The context of a Put bounds it.
	callTimeout, listTimeout = 10 * time.Second, time.Minute
	// grace is how long a call whose context is over may take to return by itself.
	grace = time.Second
)

// bounded calls do in a goroutine of its own and returns when do does, or soon after ctx is
// over: no context ends a system call on a file system that hangs. slots bounds how many
// calls there are. discard, if it is not nil, gets what a do that was given up returns in
// the end.
func bounded[T any](ctx context.Context, slots chan struct{}, do func() (T, error), discard func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case slots <- struct{}{}:
	default:
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %w", ErrStuck, ctx.Err())
		}
	}
	done, left := make(chan result), make(chan struct{})
	defer close(left)
	go func() {
		defer func() { <-slots }()
		value, err := do()
		select {
		case done <- result{value, err}:
		case <-left:
			if err == nil && discard != nil {
				discard(value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		return none, fmt.Errorf("%w: %w", ErrStuck, ctx.Err())
	}
}
