package extproc

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// failedUpstreams remembers the sandboxes whose upstream failed: the next resolve of
// such an ID asks the API server, since the index may not have seen the pod die
// yet. The read is for the client's sake; safety does not need it, so the index's
// route is used if the API server does not answer. An ID that was just checked is
// not checked again for recheckAfter, so that a client that polls a closed port
// does not use up the live reads.
//
// Safe for concurrent use. It is off the hot path: only failures and misses
// come here.
type failedUpstreams struct {
	mu  sync.Mutex
	lru *simplelru.LRU[string, suspicion]
}

type suspicion struct {
	pending bool
	checked time.Time // of the last live read; zero for never
}

const (
	maxSuspects  = 4096
	recheckAfter = time.Second
)

func newFailedUpstreams() *failedUpstreams {
	lru, err := simplelru.NewLRU[string, suspicion](maxSuspects, nil)
	if err != nil { // only for a size below 1
		panic(err)
	}
	return &failedUpstreams{lru: lru}
}

// mark makes the next resolve of the ID ask the API server.
func (s *failedUpstreams) mark(id string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.lru.Get(id)
	if ok && now.Sub(v.checked) < recheckAfter {
		return
	}
	v.pending = true
	s.lru.Add(id, v)
}

// take reports whether the ID is marked, and unmarks it.
func (s *failedUpstreams) take(id string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.lru.Peek(id)
	if !ok || !v.pending {
		return false
	}
	s.lru.Add(id, suspicion{checked: now})
	return true
}
