package suite

import (
	"fmt"
	"slices"
	"syscall"
)

// spareFiles is what a process under test has open beside one connection a
// sandbox: the clients' connections, those that wait for a pod, sockets, logs.
const spareFiles = 2_000

// Files returns how many open files each process under test may need: Envoy and
// the server behind it hold one connection for each sandbox of the largest fleet.
func (p Plan) Files() uint64 { return uint64(p.largest()) + spareFiles }

// largest returns the size of the largest fleet; 0 for a plan without any.
func (p Plan) largest() int { return slices.Max(append([]int{0}, p.Fleets...)) }

// raiseFiles raises this process's limit of open files to what it may have, and
// with it that of the processes that it starts. A limit that is too low for the plan is an
// error here; in the middle of a run it would show as failed requests.
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
