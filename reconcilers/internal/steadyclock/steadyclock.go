// Package steadyclock is the time of day for decisions that end sandboxes. It follows the
// machine's wall clock, but a step of that clock only after the clock has kept the new time
// for a minute.
//
// It is no more accurate than the wall clock. It only keeps a step that is soon taken back,
// by an operator or a time daemon, from ending every sandbox whose end lies within the step.
// reconcilers/sandbox asks it whether endAt has come.
//
// Durations (idle, startup, time without a pod) need none: comparing another machine's time of
// day would end sandboxes that have just begun, so they count on the monotonic clock of the
// process that judges them, from when it first saw the claim. A new leader counts anew but for
// idle time.
package steadyclock

import (
	"context"
	"sync"
	"time"
)

const (
	// tolerance is how far the wall clock may drift from the monotonic one between
	// two looks without being doubted: time daemons slew.
	tolerance = time.Second
	// trial is how long a new time of day must stand before it is believed.
	trial = time.Minute
	// every is how often Keep asks.
	every = 5 * time.Second
)

// Clock is a clock.PassiveClock. Safe for concurrent use. Keep must run: a step is
// noticed, and believed, only by callers that ask.
type Clock struct {
	wall func() time.Time
	mono func() time.Duration

	mu sync.Mutex
	// origin is the time of day at which mono was 0, as it is believed.
	origin time.Time
	// doubted is the origin that the wall clock says instead, since a while; zero
	// if it agrees.
	doubted time.Time
	since   time.Duration
}

// New returns a clock that believes the present time of day.
func New() *Clock {
	start := time.Now()
	return From(func() time.Time { return time.Now().Round(0) }, func() time.Duration { return time.Since(start) })
}

// From is New over another machine's time of day, and the time that has passed on
// it.
func From(wall func() time.Time, mono func() time.Duration) *Clock {
	return &Clock{wall: wall, mono: mono, origin: wall().Add(-mono())}
}

// Keep asks again and again until ctx ends, so that a step is noticed while no caller
// has a reason to ask. It calls stepped whenever the time of day has moved by more
// than half a second against the monotonic clock: what is to happen at a time of
// day comes sooner or later than was thought.
func (c *Clock) Keep(ctx context.Context, stepped func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for reported := c.asked(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := c.asked(); now.Sub(reported).Abs() > tolerance/2 {
			reported = now
			stepped()
		}
	}
}

// asked returns what origin is after a look.
func (c *Clock) asked() time.Time {
	c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin
}

// Now returns the time of day.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.mono()
	says := c.wall().Add(-now)
	switch {
	case near(says, c.origin):
		c.origin, c.doubted = says, time.Time{}
	case c.doubted.IsZero() || !near(says, c.doubted):
		c.doubted, c.since = says, now
	case now-c.since >= trial:
		c.origin, c.doubted = says, time.Time{}
	}
	return c.origin.Add(now)
}

// Since returns how long ago t was.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func near(a, b time.Time) bool { return a.Sub(b).Abs() <= tolerance }
