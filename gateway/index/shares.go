package index

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxShares bounds the keys whose use is remembered. Beyond it the key that was not
// seen for the longest time starts with a full share again.
const maxShares = 10_000

// shares are the live reads that each API key may make, and those of all requests
// without a key. The use of one share takes nothing from another. Safe for concurrent use.
type shares struct {
	perKey  int
	keyless *rate.Limiter

	mu    sync.Mutex // guards byKey
	byKey *simplelru.LRU[string, *rate.Limiter]
}

func newShares(keyless, perKey int) *shares {
	byKey, _ := simplelru.NewLRU[string, *rate.Limiter](maxShares, nil) // fails for sizes below 1 only
	return &shares{perKey: perKey, keyless: rate.NewLimiter(rate.Limit(keyless), keyless), byKey: byKey}
}

// take reports whether a read may be made, and counts it. An empty key is none.
func (s *shares) take(key string) bool {
	if key == "" {
		return s.keyless.Allow()
	}
	s.mu.Lock()
	l, found := s.byKey.Get(key)
	if !found {
		l = rate.NewLimiter(rate.Limit(s.perKey), s.perKey)
		s.byKey.Add(key, l)
	}
	s.mu.Unlock()
	return l.Allow()
}
