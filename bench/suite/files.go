package suite

import (
	"fmt"
	"slices"
	"syscall"
)

// spareFiles is how many files a process under test has open besides one connection for each
// sandbox: the clients' connections, also of requests that wait for a pod, sockets, logs.
const spareFiles = 2_000

// Files returns how many open files each process under test may need: Envoy and
// the server behind it hold one connection for each sandbox of the largest fleet.
func (p Plan) Files() uint64 { return uint64(p.largest()) + spareFiles }

// largest returns the size of the largest fleet; 0 for a plan without any.
func (p Plan) largest() int { return slices.Max(append([]int{0}, p.Fleets...)) }

// raiseFiles raises the limit of open files of this process, and so of the processes that it
// starts, as far as it may. It fails if the limit is too low for the plan: otherwise requests
// would fail in the middle of a run.
func raiseFiles(p Plan) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if err := checkFiles(p, limit.Max); err != nil {
		return err
	}
	limit.Cur = limit.Max
	// Set by this call although Go has raised it at the start: children get the
	// limit that was set last, and otherwise the one that this process was given.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}

func checkFiles(p Plan, limit uint64) error {
	if need := p.Files(); limit < need {
		return fmt.Errorf("a fleet of %d sandboxes needs %d open files in each process, and this machine allows %d: raise the hard limit (ulimit -Hn %d) or choose smaller fleets (--fleets)",
			p.largest(), need, limit, need)
	}
	return nil
}
