package restapi

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxLimiters bounds each set of limiters. Beyond it the client that was not seen for the
// longest time starts with a full budget again.
const maxLimiters = 10_000

// limiters is a rate limiter for each key or source.
type limiters struct {
	limit Limit
	mu    sync.Mutex // guards all
	all   *simplelru.LRU[string, *rate.Limiter]
}

func newLimiters(limit Limit) *limiters {
	all, _ := simplelru.NewLRU[string, *rate.Limiter](maxLimiters, nil) // fails for sizes below 1 only
	return &limiters{limit: limit, all: all}
}

// budget is what a limiter says of one request.
type budget struct {
	ok          bool
	burst, left int
	full        time.Duration // until nothing is used
	wait        time.Duration // until the next request may come, if not ok
}

// take counts one request of a client.
func (l *limiters) take(client string) budget { return l.takeN(client, 1) }

// takeN counts n of them, all or none. No more than the burst count, which could
// never be had.
func (l *limiters) takeN(client string, n int) budget {
	n = min(n, l.limit.Burst)
	l.mu.Lock()
	limiter, found := l.all.Get(client)
	if !found {
		limiter = rate.NewLimiter(rate.Limit(l.limit.PerSecond), l.limit.Burst)
		l.all.Add(client, limiter)
	}
	l.mu.Unlock()

	now := time.Now()
	ok := limiter.AllowN(now, n)
	tokens := limiter.TokensAt(now)
	b := budget{ok: ok, burst: l.limit.Burst, left: max(int(tokens), 0), full: l.fill(float64(l.limit.Burst) - tokens)}
	if !ok {
		b.wait = max(l.fill(float64(n)-tokens), time.Millisecond)
	}
	return b
}

// fill is how long it takes to earn n tokens.
func (l *limiters) fill(n float64) time.Duration {
	return time.Duration(n / l.limit.PerSecond * float64(time.Second))
}
