package freeze

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Freezer stops and continues the processes of a PID namespace. Make it with New. It is
// safe for concurrent use.
type Freezer struct {
	proc string // the folder /proc
	self int    // the number of this process

	inOrder time.Duration // how long a freeze goes on generation by generation: orderPatience

	mu      sync.Mutex         // guards the rest; held for a whole Freeze or Thaw
	stopped []process          // in the order in which they were stopped
	asleep  map[process]bool   // of those, the ones that sleep in the kernel and stop when they wake
	still   map[process]uint64 // the processes that the last list of a Freeze found halted, and the processor time that each had used
}

// process names a process. With the start time it names no later process of the same number.
type process struct {
	pid   int
	start uint64 // in clock ticks since the machine's start
}

// New returns a Freezer of this process's PID namespace. All processes of the namespace must
// belong to the sandbox, except PID 1 and this process, which are not stopped.
func New() *Freezer {
	return &Freezer{proc: "/proc", self: unix.Getpid(), inOrder: orderPatience, asleep: map[process]bool{}}
}

// Freeze returns nil when all processes are stopped. A second Freeze stops the processes that
// have come since. Before it returns an error, which may be the context's, it continues all
// processes that a Freeze stopped.
func (f *Freezer) Freeze(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.freeze(ctx); err != nil {
		return errors.Join(fmt.Errorf("stopping the sandbox's processes: %w", err), f.thaw())
	}
	return nil
}

// Refreeze stops processes that run although they were frozen; escaped reports whether there
// were any, or whether one has run since the last look and stopped itself: a timer or a
// socket may have sent them SIGCONT. It also stops processes that were
// put into the namespace from outside, which do not count as escaped. After an error, which
// may be the context's, stopped processes stay stopped.
func (f *Freezer) Refreeze(ctx context.Context) (escaped bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A process that sleeps in the kernel may have been continued there: signal it again.
	clear(f.asleep)
	if escaped, err = f.freeze(ctx); err != nil {
		return escaped, fmt.Errorf("stopping the sandbox's processes again: %w", err)
	}
	return escaped, nil
}

// Thaw continues the processes that Freeze stopped. If one cannot be continued, the others
// still are; the error names it, and the next Thaw tries again.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw()
}

// Kill kills every process with SIGKILL, after which a stopped process runs no code, and
// returns without waiting for their ends. The error names the processes that cannot be
// signalled.
func (f *Freezer) Kill() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, _, err := f.list()
	failed := []error{err}
	for pid := range all {
		if f.never(pid) {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			failed = append(failed, fmt.Errorf("killing process %d: %w", pid, err))
		}
	}
	return errors.Join(failed...)
}

// freeze stops generation after generation until a list of all processes has none that
// runs; ran reports whether one of the sandbox's ran in the first list, or between the last
// list of an earlier call and the first one. A running process may continue stopped ones, so
// each list is judged anew.
//
// list reads the names of all processes before their states. A process that is named while
// it runs, starts another one and ends shows neither. So the last list must show only
// processes that were halted in the list before, and could start none meanwhile. mu is held.
func (f *Freezer) freeze(ctx context.Context) (ran bool, err error) {
	begun := time.Now()
	var others map[process]bool // from the first stopAll on
	for first := true; ; first = false {
		all, ended, err := f.list()
		if err != nil {
			return ran, err
		}
		if first {
			ran = f.escaped(all)
		}
		next := f.generation(all)
		before := f.still
		f.still = f.allHalted(all)
		if len(next) == 0 && !ended && within(f.still, before) {
			return ran, nil
		}
		if err := ctx.Err(); err != nil {
			return ran, err
		}
		if time.Since(begun) > f.inOrder {
			if others == nil {
				others = f.stoppedByOthers(all)
			}
			next, err = f.stopAll(len(next) > 0, others)
		} else {
			err = f.stopEach(next)
		}
		if err != nil {
			return ran, err
		}
		if err := f.awaitStopped(ctx, next); err != nil {
			return ran, err
		}
	}
}

// escaped reports whether a process of the sandbox runs or, if f.still has those of an
// earlier list, has used the processor or was started since.
func (f *Freezer) escaped(all map[int]seen) bool {
	for pid, s := range all {
		if f.never(pid) || f.fromOutside(all, pid) {
			continue
		}
		used, known := f.still[s.process]
		if s.state == running || f.still != nil && (!known || s.used > used) {
			return true
		}
	}
	return false
}

// fromOutside reports whether a process, or one from which it descends, was put into the
// namespace from outside, as the command of a probe is.
func (f *Freezer) fromOutside(all map[int]seen, pid int) bool {
	for range all { // as many steps as there are processes: parents that change may seem to form a circle
		s, here := all[pid]
		if !here {
			return true
		}
		if f.never(pid) {
			return false
		}
		pid = s.parent
	}
	return false
}

// never reports whether a process is never stopped.
func (f *Freezer) never(pid int) bool { return pid == 1 || pid == f.self }

// generation returns the processes that run and whose parents do not.
func (f *Freezer) generation(all map[int]seen) (next []process) {
	for pid, s := range all {
		if f.never(pid) || f.halted(s) {
			continue
		}
		// A process that was put into the namespace from outside has no parent in it.
		parent, known := all[s.parent]
		if !known || f.never(s.parent) || f.halted(parent) {
			next = append(next, s.process)
		}
	}
	return next
}

// halted reports whether a process runs no code of its own. One that sleeps in the
// kernel counts once it was signalled and has not stopped for a while.
func (f *Freezer) halted(s seen) bool {
	return s.state == halted || s.state == inKernel && f.asleep[s.process]
}

// allHalted returns the processes that are halted, and the processor time that each has used.
func (f *Freezer) allHalted(all map[int]seen) map[process]uint64 {
	still := make(map[process]uint64, len(all))
	for pid, s := range all {
		if !f.never(pid) && f.halted(s) {
			still[s.process] = s.used
		}
	}
	return still
}

// within reports whether all of a set is in another one.
func within(set, other map[process]uint64) bool {
	for p := range set {
		if _, there := other[p]; !there {
			return false
		}
	}
	return true
}

// stopEach signals processes and notes them.
func (f *Freezer) stopEach(all []process) error {
	for _, p := range all {
		if err := f.stop(p); err != nil {
			return err
		}
	}
	return nil
}

// stop signals one process and notes it. It is no error if the process has ended.
func (f *Freezer) stop(p process) error {
	switch err := unix.Kill(p.pid, unix.SIGSTOP); err {
	case nil:
		if !slices.Contains(f.stopped, p) {
			f.stopped = append(f.stopped, p)
		}
	case unix.ESRCH:
	default:
		return fmt.Errorf("process %d: %w", p.pid, err)
	}
	return nil
}

const (
	maxCheck = 2 * time.Millisecond // the longest time between two checks of a process that is to stop
	// sleepPatience is how long a signalled process may sleep in the kernel before it
	// counts as stopped. It stops when it returns from the kernel; a process that waits until
	// its child executes a program (vfork) returns only then.
	sleepPatience = 50 * time.Millisecond
)

// awaitStopped returns when none of the processes runs any more.
func (f *Freezer) awaitStopped(ctx context.Context, all []process) error {
	begun := time.Now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, maxCheck) {
		patient := time.Since(begun) < sleepPatience
		all = slices.DeleteFunc(all, func(p process) bool {
			s, err := f.inspect(p.pid)
			switch {
			case gone(err), err == nil && s.process != p:
				return true
			case err == nil && s.state == inKernel && !patient:
				f.asleep[p] = true
				return true
			}
			return err == nil && s.state == halted
		})
		if len(all) == 0 {
			return nil
		}
		pause.Reset(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d does not stop: %w", all[0].pid, ctx.Err())
		}
	}
}

// thaw continues all processes in f.stopped, the last one first. mu is held.
func (f *Freezer) thaw() error {
	var left []process
	var failed []error
	for _, p := range slices.Backward(f.stopped) {
		if s, err := f.inspect(p.pid); err == nil && s.process != p {
			continue // it has ended, and another process has its number
		}
		if err := unix.Kill(p.pid, unix.SIGCONT); err != nil && err != unix.ESRCH {
			left = append(left, p)
			failed = append(failed, fmt.Errorf("continuing process %d: %w", p.pid, err))
		}
	}
	slices.Reverse(left)
	f.stopped = left
	f.still = nil
	clear(f.asleep)
	return errors.Join(failed...)
}
