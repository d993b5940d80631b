// Package ratelimit is a rate limiter for each of many clients. Make [Limiters] with New and
// Take for each request; package restapi has one set by API key and one by source.
package ratelimit

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxLimiters bounds each set of limiters. Beyond it the client that was not seen for the
// longest time starts with a full budget again.
const maxLimiters = 10_000

// Limit is a rate and what may come at once.
type Limit struct {
	PerSecond float64
	Burst     int
}

// Limiters is a rate limiter for each client. It is safe for concurrent use.
type Limiters struct {
	limit Limit
	mu    sync.Mutex // guards all
	all   *simplelru.LRU[string, *rate.Limiter]
}

// New returns Limiters in which every client has its full budget.
func New(limit Limit) *Limiters {
	all, _ := simplelru.NewLRU[string, *rate.Limiter](maxLimiters, nil) // fails for sizes below 1 only
	return &Limiters{limit: limit, all: all}
}

// Budget is what a limiter says of one request.
type Budget struct {
	OK          bool
	Burst, Left int
	Full        time.Duration // until nothing is used
	Wait        time.Duration // until the next request may come, if not OK
}

// Take counts one request of a client.
func (l *Limiters) Take(client string) Budget { return l.TakeN(client, 1) }

// TakeN counts n of them, all or none. No more than the burst count, which could
// never be had.
func (l *Limiters) TakeN(client string, n int) Budget {
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
	b := Budget{OK: ok, Burst: l.limit.Burst, Left: max(int(tokens), 0), Full: l.fill(float64(l.limit.Burst) - tokens)}
	if !ok {
		b.Wait = max(l.fill(float64(n)-tokens), time.Millisecond)
	}
	return b
}

// fill is how long it takes to earn n tokens.
func (l *Limiters) fill(n float64) time.Duration {
	return time.Duration(n / l.limit.PerSecond * float64(time.Second))
}
