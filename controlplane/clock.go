package controlplane

import "time"

// instant is a moment on the wall clock and on the monotonic clock. Neither is
// enough for a lease: the wall clock can be set back, and the monotonic one
// stands still while the machine is suspended.
type instant struct{ wall, mono int64 }

var processStart = time.Now()

func now() instant {
	t := time.Now()
	return instant{wall: t.UnixNano(), mono: int64(t.Sub(processStart))}
}

func (i instant) add(d time.Duration) instant {
	return instant{wall: i.wall + int64(d), mono: i.mono + int64(d)}
}

// before reports whether i lies before the deadline on both clocks.
func (i instant) before(deadline instant) bool {
	return i.wall < deadline.wall && i.mono < deadline.mono
}

// until is the shorter of the two clocks' times from i to the deadline.
func (i instant) until(deadline instant) time.Duration {
	return time.Duration(min(deadline.wall-i.wall, deadline.mono-i.mono))
}
