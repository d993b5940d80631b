package ratelimit

import (
	"fmt"
	"testing"
)

// Sources that come and go take no more memory than a fixed number of them.
func TestLimitersAreBounded(t *testing.T) {
	l := New(Limit{PerSecond: 1, Burst: 1})
	for i := range maxLimiters + 100 {
		l.Take(fmt.Sprint(i))
	}
	if n := l.all.Len(); n != maxLimiters {
		t.Errorf("%d limiters", n)
	}
}
