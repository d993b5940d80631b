package freeze

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// orderPatience is how long a freeze goes on generation by generation. Processes that each
// start the next one and end may escape it for as long as they like: while the older one is
// stopped, the younger one starts the next. A shell that sees a child stop is the lesser evil
// then. It is well within an order's time, and longer than a freeze takes on a busy machine.
const orderPatience = time.Second

// stopAll signals all processes at once if some run, and returns those that it or an earlier
// call may have stopped. The kernel does that in one step (kill(2) with -1; it leaves out
// PID 1 and the caller, as Freeze must). A process that is being started meanwhile comes with
// the signal: it may be missing here, and be stopped when it is first seen. So all is this
// Freezer's but what others had stopped before the first call. mu is held.
func (f *Freezer) stopAll(someRun bool, others map[process]bool) (stopped []process, err error) {
	if someRun {
		if err := unix.Kill(-1, unix.SIGSTOP); err != nil && err != unix.ESRCH {
			return nil, fmt.Errorf("all processes: %w", err)
		}
	}
	all, _, err := f.list()
	if err != nil {
		return nil, err
	}
	for pid, s := range all {
		if !f.never(pid) && !others[s.process] {
			stopped = append(stopped, s.process)
		}
	}
	// The thaw continues the last one first: children, which started after their parents.
	slices.SortFunc(stopped, func(a, b process) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	for _, p := range stopped {
		if !slices.Contains(f.stopped, p) {
			f.stopped = append(f.stopped, p)
		}
	}
	return stopped, nil
}

// stoppedByOthers returns the processes that another program has stopped. mu is held.
func (f *Freezer) stoppedByOthers(all map[int]seen) map[process]bool {
	others := map[process]bool{}
	for pid, s := range all {
		if !f.never(pid) && f.halted(s) && !slices.Contains(f.stopped, s.process) {
			others[s.process] = true
		}
	}
	return others
}
