package sandboxd

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// wallClock is the machine's clock. Files get their ctimes from it, and an archive has those
// with a ctime since the start of the container: so it must know how far the clock was set
// back meanwhile, by /init, an NTP client, or a leap second. Safe for concurrent use.
//
// It looks at the clock at the start, before and after each /init that sets it, and at each
// archive. A clock that is set back and forward again between two looks is not noticed:
// what was changed meanwhile is not kept.
type wallClock struct {
	// ahead returns how far the clock is ahead of the time since the machine's boot, which
	// nothing can set. They run equally fast.
	ahead func() time.Duration
	set   func(time.Time) error

	mu           sync.Mutex
	start, least time.Duration // what ahead returned at first, and at least
}

func newWallClock(ahead func() time.Duration, set func(time.Time) error) *wallClock {
	at := ahead()
	return &wallClock{ahead: ahead, set: set, start: at, least: at}
}

func machineClock() *wallClock { return newWallClock(aheadOfBoot, setClock) }

// since returns the earliest time that a file may have got that was changed after start,
// a time that was read from the clock when it began to be watched.
func (c *wallClock) since(start time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.least = min(c.least, c.ahead())
	return start.Add(c.least - c.start)
}

// setTo sets the clock.
func (c *wallClock) setTo(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.least = min(c.least, c.ahead())
	err := c.set(t)
	c.least = min(c.least, c.ahead())
	return err
}

// aheadOfBoot is too small by as long as the thread waits between the two calls, which
// fileClockLag allows for.
func aheadOfBoot() time.Duration {
	var wall, boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall) // these two do not fail
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	return time.Duration(wall.Nano() - boot.Nano())
}

func setClock(t time.Time) error {
	now := unix.NsecToTimespec(t.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}
