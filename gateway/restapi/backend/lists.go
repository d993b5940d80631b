package backend

import (
	"context"
	"sync"
)

// maxLists bounds how many lists of its sandboxes each API key has under way. A list
// holds a whole namespace's sandboxes in memory.
const maxLists = 4

// lists are the lists under way, by API key. A key that has as many as it may waits
// for its own alone. Safe for concurrent use.
type lists struct {
	mu    sync.Mutex // guards byKey and what it points to, but for running
	byKey map[string]*keyLists
}

// keyLists are those of one key. They are forgotten with the last of them.
type keyLists struct {
	running chan struct{} // one for each list under way
	callers int           // under way or waiting
}

// begin waits until the key may begin a list; the caller calls end after it. An error
// is the context's.
func (l *lists) begin(ctx context.Context, key string) (end func(), err error) {
	l.mu.Lock()
	of := l.byKey[key]
	if of == nil {
		of = &keyLists{running: make(chan struct{}, maxLists)}
		if l.byKey == nil {
			l.byKey = map[string]*keyLists{}
		}
		l.byKey[key] = of
	}
	of.callers++
	l.mu.Unlock()
	select {
	case of.running <- struct{}{}:
		return func() { <-of.running; l.leave(key, of) }, nil
	case <-ctx.Done():
		l.leave(key, of)
		return nil, ctx.Err()
	}
}

func (l *lists) leave(key string, of *keyLists) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.callers--; of.callers == 0 {
		delete(l.byKey, key)
	}
}
