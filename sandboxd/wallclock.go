package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// wallClock is the machine's clock. Files get their ctimes from it, and an archive has those
// with a ctime since the start of the container: so it must know how far the clock was set
// back meanwhile, by /init, an NTP client, or a leap second. Safe for concurrent use.
//
// It looks at the clock at the start, before and after each /init that sets it, each time
// that the kernel says it was set (follow), and at each archive. A clock that is set back and
// forward again before the goroutine of follow runs, which takes microseconds, is not
// noticed: what was changed in between is not kept.
type wallClock struct {
	// ahead returns how far the clock is ahead of the time since the machine's boot, which
	// nothing can set. They run equally fast.
	ahead func() time.Duration
	set   func(time.Time) error
	// sets begins to note each time that anything sets the clock.
	sets func() (clockSets, error)

	mu           sync.Mutex
	start, least time.Duration // what ahead returned at first, and at least
}

// clockSets are the times at which the clock is set.
type clockSets interface {
	// next returns nil when the clock was set since the call before, or an error after Close.
	next() error
	Close() error
}

func newWallClock(ahead func() time.Duration, set func(time.Time) error, sets func() (clockSets, error)) *wallClock {
	at := ahead()
	return &wallClock{ahead: ahead, set: set, sets: sets, start: at, least: at}
}

func machineClock() *wallClock { return newWallClock(aheadOfBoot, setClock, newTimer) }

// follow looks at the clock each time that it is set, until stop is called.
// Where the kernel does not say that, it logs so.
func (c *wallClock) follow(log io.Writer) (stop func()) {
	sets, err := c.sets()
	if err != nil {
		_, _ = fmt.Fprintln(log, "sandboxd: noting when the clock is set:", err)
		return func() {}
	}
	c.look() // it may have been set before
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sets.next() == nil {
			c.look()
		}
	}()
	return func() {
		_ = sets.Close()
		<-done
	}
}

func (c *wallClock) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.least = min(c.least, c.ahead())
}

// since returns the earliest time that a file may have got that was changed after start,
// a time that was read from the clock when it began to be watched.
func (c *wallClock) since(start time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.least = min(c.least, c.ahead())
	return start.Add(c.least - c.start)
}

// mark returns the time since the machine's boot at which a file that is changed from now on is
// changed at the earliest.
func (c *wallClock) mark() time.Duration {
	return time.Duration(time.Now().Add(-fileClockLag).UnixNano()) - c.ahead()
}

// sinceMark returns the earliest time that a file may have got that was changed after a mark.
func (c *wallClock) sinceMark(mark time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.least = min(c.least, c.ahead())
	return time.Unix(0, int64(mark+c.least))
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

// timer is a timerfd that the kernel cancels whenever the clock is set.
type timer struct{ *os.File }

func newTimer() (clockSets, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd") // not blocking, and so given to the runtime's poller
	const never = 1 << 33                      // seconds: the year 2242
	at := &unix.ItimerSpec{Value: unix.Timespec{Sec: never}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, at, nil); err != nil {
		_ = file.Close()
		return nil, os.NewSyscallError("timerfd_settime", err)
	}
	return timer{file}, nil
}

func (t timer) next() error {
	_, err := t.Read(make([]byte, 8))
	if errors.Is(err, unix.ECANCELED) {
		return nil
	}
	return err
}
