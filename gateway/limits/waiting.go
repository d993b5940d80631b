package limits

import (
	"sync"

	"github.com/sandlane/sandlane/routing"
)

// Waiting counts the requests that wait: for a pod, a resume, the end of a hold, a live read.
// Safe for concurrent use.
type Waiting struct {
	limits Reader
	room   int

	mu    sync.Mutex // guards the rest
	all   int
	of    map[waiters]int
	names map[nameWaiters]int
}

// waiters are a namespace's requests with a valid key, or those without.
type waiters struct {
	namespace string
	keyed     bool
}

// nameWaiters are those of a namespace for one sandbox. While the sandbox is not known the
// namespace is the key's: a stranger's key takes no place of its owner's.
type nameWaiters struct {
	waiters
	id string
}

// NewWaiting returns a Waiting that counts none. maxStreams is as in Options.
func NewWaiting(limits Reader, maxStreams int) *Waiting {
	return &Waiting{limits: limits, room: waitingRoom(maxStreams), of: map[waiters]int{}, names: map[nameWaiters]int{}}
}

// Wait takes a place for a request for the sandbox until leave is called, once. keyed: the
// request has shown a valid API key. The errors are extproc's, and say which limit it is.
func (w *Waiting) Wait(namespace, id string, keyed bool) (leave func(), err error) {
	l := w.limits.Of(namespace)
	by, name := waiters{namespace, keyed}, nameWaiters{waiters{namespace, keyed}, id}
	w.mu.Lock()
	defer w.mu.Unlock()
	free := w.room - w.all
	switch {
	case free <= 0:
		return nil, routing.ErrParkingFull
	case w.names[name] >= l.WaitingForName:
		return nil, routing.ErrNameParking
	case keyed && w.of[by] >= l.Waiting*free:
		return nil, routing.ErrNamespaceParking
	case !keyed && w.of[by] >= l.WaitingWithoutKey*free:
		return nil, routing.ErrKeylessParking
	}
	w.all++
	w.of[by]++
	w.names[name]++
	return func() { w.leave(by, name) }, nil
}

func (w *Waiting) leave(by waiters, name nameWaiters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[by]--; w.of[by] == 0 {
		delete(w.of, by)
	}
	if w.names[name]--; w.names[name] == 0 {
		delete(w.names, name)
	}
}

// Taken returns how many places are taken.
func (w *Waiting) Taken() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all
}
