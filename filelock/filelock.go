// Package filelock lets one process at a time do something: the others wait for a file's
// lock. The caches of downloads, builds and images use it.
//
// A lock ends with its process at the latest. It is advisory: a program that does not
// call Lock is not held up.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// poll is the time between two looks at a lock that another process has.
const poll = 100 * time.Millisecond

// Lock waits until the caller alone has the lock of a file, which it makes if it is not
// there, or until ctx ends: then the error is its cause. waiting is called once if the lock
// is another's; it may be nil. Call unlock once.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file descriptor
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-tick.C:
		}
	}
}
