// Package resync chooses when an object to which nothing has happened is reconciled again.
// The delays are random, so that a thousand objects are not reconciled at once, and end at
// common moments, two a second: a process that wakes at these for all its objects uses half
// the processor time of one that wakes for each.
package resync

import (
	"math/rand/v2"
	"time"
)

// together is the time between two moments at which looks begin.
const together = 500 * time.Millisecond

// Between returns a random delay from least to most that ends at a common moment. most must
// be more than 500 ms above least.
func Between(least, most time.Duration) time.Duration {
	now := time.Now()
	d := least + time.Duration(rand.Int64N(int64(most-least))) //nolint:gosec // spreads load
	switch d = now.Add(d).Round(together).Sub(now); {
	case d < least:
		d += together
	case d > most:
		d -= together
	}
	return d
}

// Sooner returns the shorter of two delays, of which 0 or less means none.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
