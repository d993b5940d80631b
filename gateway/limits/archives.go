package limits

import (
	"context"
	"sync"
)

// archivePlaces is how many archives a gateway writes at once: less than the store's threads
// (package checkpoint), so that an archive that has a place here waits for none there.
const archivePlaces = 60

// Archives counts the archives that this gateway takes from pods, to write them into the store.
// Safe for concurrent use.
type Archives struct {
	limits Reader

	mu   sync.Mutex // guards the rest
	all  int
	of   map[string]int // by namespace
	left chan struct{}  // closed when a place is left, and then another
}

// NewArchives returns an Archives that counts none.
func NewArchives(limits Reader) *Archives {
	return &Archives{limits: limits, of: map[string]int{}, left: make(chan struct{})}
}

// Wait takes a place for an archive of the namespace until leave is called, once. While the
// namespace has its share, or no place is free, it waits; the error is the context's.
func (a *Archives) Wait(ctx context.Context, namespace string) (leave func(), err error) {
	for {
		left := a.take(namespace)
		if left == nil {
			return func() { a.leave(namespace) }, nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes a place, and returns nil; or what is closed when the next one is left.
func (a *Archives) take(namespace string) <-chan struct{} {
	l := a.limits.Of(namespace)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[namespace] >= l.Archives*(archivePlaces-a.all) {
		return a.left
	}
	a.all++
	a.of[namespace]++
	return nil
}

func (a *Archives) leave(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.of[namespace]--; a.of[namespace] == 0 {
		delete(a.of, namespace)
	}
	close(a.left)
	a.left = make(chan struct{})
}
