package schedule

import (
	"sync"
	"time"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// firstClaims are the claims that each scheduler may have under way whatever the API
	// server's latency, unless that throttles. More at once would not be served sooner by one
	// that is quick, but wait inside the client or the API server while their timeouts run,
	// and a claim that times out costs its pod. A request that waits for its turn here can
	// still leave. Each claim under way also has a pod that other gateways do not see taken
	// yet: at the end of a pool's stock they try it too.
	firstClaims = 12
	// mostClaims bounds the claims under way of one scheduler, and leastClaims is their bound
	// at an API server that throttles all.
	mostClaims, leastClaims = 128, 2
	// slowWrite is the least latency at which more claims at once are worth it: by quicker
	// writes firstClaims claim hundreds of pods a second.
	slowWrite = 20 * time.Millisecond
	// measuredFor is how long the shortest latency counts. Then it is measured anew, at
	// firstClaims: an API server that was quick may have become a slow one.
	measuredFor = time.Minute
)

// room says how many claims the schedulers of a gateway may have under way: each firstClaims,
// and beyond those all together as many more as window allows one. Safe for concurrent use.
type room struct {
	mu     sync.Mutex // guards the rest
	window window
	beyond int // claims under way beyond the first of each scheduler
}

func newRoom() *room { return &room{window: window{limit: firstClaims}} }

// has reports whether a scheduler with so many claims under way may begin another. Several
// that ask at once may together exceed the limit by one each.
func (r *room) has(running int, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window.renew(now)
	if running < firstClaims {
		return running < r.window.limit
	}
	return r.beyond < r.window.limit-firstClaims
}

// change counts a claim that begins or ends in a scheduler.
func (r *room) change(before, after int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beyond += max(after-firstClaims, 0) - max(before-firstClaims, 0)
}

// learn takes in how a claim's write went.
func (r *room) learn(x write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window.learn(x)
}

// window bounds the claims under way by how the API server answers their writes. It adds while
// that helps and takes off by a factor when it does not, as TCP does, and takes a latency well
// above the shortest one for a queue, as TCP Vegas and Netflix's concurrency-limits do:
//
//	in about the shortest time, of slowWrite or more   one more, if requests wait for it
//	in more than twice that                            fewer by an eighth, not below firstClaims
//	it throttles, or does not answer                   half, not below leastClaims
//	the shortest time was measured long ago            firstClaims at most, and measure anew
//
// What was sent before the last of these cuts says nothing of what holds since. It is a pure
// decision: time comes from its caller.
type window struct {
	limit    int
	shortest time.Duration // of the writes that were applied since measured; 0: none was
	measured time.Time
	cut      time.Time // when limit was last made smaller
}

// write is one write of a claim.
type write struct {
	sent, answered time.Time
	verdict        writes.Verdict
	wanted         bool // requests wait though there are pods
}

// renew forgets a shortest time that was measured too long ago.
func (w *window) renew(now time.Time) {
	if now.Sub(w.measured) >= measuredFor {
		*w = window{limit: min(w.limit, firstClaims), measured: now, cut: now}
	}
}

func (w *window) learn(x write) {
	if x.sent.Before(w.cut) {
		return
	}
	took := x.answered.Sub(x.sent)
	switch x.verdict {
	case writes.Throttled, writes.Ambiguous:
		w.limit, w.cut = max(w.limit/2, leastClaims), x.answered
	case writes.Applied:
		if w.shortest == 0 || took < w.shortest {
			w.shortest = took
		}
		switch {
		case took > 2*w.shortest && w.limit > firstClaims:
			w.limit, w.cut = max(w.limit-w.limit/8, firstClaims), x.answered
		case w.limit < firstClaims, x.wanted && w.shortest >= slowWrite && took < w.shortest*3/2:
			w.limit = min(w.limit+1, mostClaims)
		}
	}
}
