package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// downTimeout is how long `down` waits before it kills: longer than `up` may
// take to stop in order.
const downTimeout = stopTimeout + 15*time.Second

// Down stops the `up` of a state folder, waits until all of it is gone, and
// returns in a sentence what it did. It also takes away what a killed `up`
// left. That nothing runs is no error.
func Down(ctx context.Context, stateDir string) (string, error) {
	s := newState(stateDir)
	pid, err := s.running()
	if pid != 0 && startTime(pid) == "" {
		// It is just ending, and lets go of the lock soon, or it is none of this machine's.
		if pid, err = s.holder(); pid != 0 && startTime(pid) == "" {
			return "", s.unseen(pid)
		}
	}
	if err != nil {
		return "", err
	}
	if pid != 0 {
		return s.stopRunning(ctx, pid)
	}
	if _, err := os.Stat(s.lockFile()); errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("Sandlane is not running with the state folder %s", stateDir), nil
	}
	unlock, err := s.lock("")
	if err != nil {
		return "", err
	}
	defer unlock()
	left := s.leftFiles()
	ended, err := s.clean()
	switch {
	case err != nil:
		return "", err
	case len(ended) > 0:
		return fmt.Sprintf("`sandlane up` was killed earlier; ended what it left: %s", strings.Join(ended, ", ")), nil
	case left:
		return "`sandlane up` was killed earlier; removed the files and networks it left", nil
	}
	return fmt.Sprintf("Sandlane is not running with the state folder %s", stateDir), nil
}

// leftFiles reports whether an `up` did not clean up after itself.
func (s state) leftFiles() bool {
	for _, path := range []string{s.run, s.upFile()} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

func (s state) stopRunning(ctx context.Context, pid int) (string, error) {
	var names []string
	var list []recorded
	if b, err := os.ReadFile(s.processFile()); err == nil {
		_ = json.Unmarshal(b, &list) // for the sentence only
	}
	for _, p := range list {
		names = append(names, p.Name)
	}
	if err := s.signal(pid, syscall.SIGTERM); err != nil {
		return "", err
	}
	killed, err := s.waitUnlocked(ctx, pid)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("stopped `sandlane up` (pid %d)", pid)
	if len(names) > 0 {
		what += ": " + strings.Join(names, ", ")
	}
	if killed {
		what += fmt.Sprintf("; it did not end within %s and was killed", downTimeout)
	}
	// It cleans up after itself, unless it was killed: just now or just before.
	if s.leftFiles() {
		unlock, err := s.lock("")
		if other := (*ErrRunning)(nil); errors.As(err, &other) || errors.Is(err, errUnnamed) {
			return what, nil // the files are those of another `up`, just started, or another `down` removes them
		}
		if err != nil {
			return "", err
		}
		defer unlock()
		if _, err := s.clean(); err != nil {
			return "", err
		}
	}
	return what, nil
}

// signal sends a signal to the `up` that holds the lock. It sends none to a process that did not
// write the lock's file: the PID may be another's here if `up` runs in another container.
func (s state) signal(pid int, sig os.Signal) error {
	p, err := os.FindProcess(pid) // holds on to the process, whichever it is
	if err != nil {
		return fmt.Errorf("stop `sandlane up` (pid %d): %w", pid, err)
	}
	defer func() { _ = p.Release() }()
	now := startTime(pid)
	if now == "" {
		return nil // it ends by itself
	}
	if holder, start := s.lockHolder(); holder != pid || start != now {
		return s.unseen(pid)
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop `sandlane up` (pid %d): %w", pid, err)
	}
	return nil
}

// unseen is the error for a holder of the lock that is not to be signalled.
func (s state) unseen(pid int) error {
	return fmt.Errorf("the `sandlane up` with the state folder %s (pid %d) runs in another container or on another machine, or is of an earlier version: stop it where it runs, with Ctrl-C or kill. No process here is known to be it", s.dir, pid)
}

// waitUnlocked waits until the `up` has let go of its state folder, and kills
// it when that takes too long.
func (s state) waitUnlocked(ctx context.Context, pid int) (killed bool, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(downTimeout)
	defer deadline.Stop()
	for {
		now, err := s.running()
		if now != pid && (err == nil || errors.Is(err, errUnnamed)) { // another process may have the lock by now
			return killed, nil
		}
		if err != nil {
			return killed, err
		}
		select {
		case <-ctx.Done():
			return killed, fmt.Errorf("wait for `sandlane up` (pid %d) to end: %w", pid, context.Cause(ctx))
		case <-deadline.C:
			killed = true
			if err := s.signal(pid, syscall.SIGKILL); err != nil {
				return killed, err
			}
		case <-tick.C:
		}
	}
}
