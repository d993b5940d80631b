// Command podinit is the first program of every process that the local node
// starts: it enters namespaces, builds the root, gives up privileges, and
// executes the real command.
//
// It is started by the node alone (local/node), which tells it what to do as
// one initspec.Spec on file descriptor 3, and learns from descriptor 4 what
// went wrong. Started by hand it says so and exits. It holds no state and
// leaves nothing behind: its mounts live in its own mount namespace.
//
// All of its work happens on the main thread: namespaces, capabilities and the
// parent-death signal belong to threads, and an exec keeps those of the thread
// that calls it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// exitSetup is podinit's exit code when it could not start the command.
const exitSetup = 125

func init() { runtime.LockOSThread() }

func main() {
	var stat unix.Stat_t
	if unix.Fstat(initspec.SpecFD, &stat) != nil || unix.Fstat(initspec.StatusFD, &stat) != nil {
		fmt.Fprintln(os.Stderr, "podinit: a helper of the Sandlane node; it is not to be started by hand")
		os.Exit(exitSetup)
	}
	// The command gets the standard streams alone, whatever files the node was
	// started with.
	if err := unix.CloseRange(initspec.SpecFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := initspec.SpecFD; fd < 1024; fd++ { // before Linux 5.11
			unix.CloseOnExec(fd)
		}
	}
	heedSignals()
	code, err := run(os.NewFile(initspec.SpecFD, "spec"))
	if err != nil {
		_, _ = unix.Write(initspec.StatusFD, []byte(err.Error()))
		os.Exit(exitSetup)
	}
	os.Exit(code)
}

// run returns only when the command could not be executed, or, for a command
// that runs as a child, with its exit code.
func run(r io.Reader) (int, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return 0, fmt.Errorf("read the spec: %w", err)
	}
	var s initspec.Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return 0, fmt.Errorf("parse the spec: %w", err)
	}
	for _, file := range s.Cgroups {
		// Limits are best effort: the node made the groups that it could.
		_ = os.WriteFile(file, []byte("0"), 0)
	}
	if len(s.Join) > 0 || s.Child {
		return runChild(&s)
	}
	if s.NetNS > 0 {
		if err := unix.Setns(s.NetNS, unix.CLONE_NEWNET); err != nil {
			return 0, fmt.Errorf("enter the pod's network: %w", err)
		}
	}
	if s.Root != nil {
		if err := enterRoot(s.Root); err != nil {
			return 0, err
		}
	}
	if err := giveUp(&s, true); err != nil {
		return 0, err
	}
	path, err := prepare(&s)
	if err != nil {
		return 0, err
	}
	if parentGone() {
		return 0, fmt.Errorf("the node is gone")
	}
	return 0, execError(path, unix.Exec(path, s.Args, s.Env))
}

// parentGone reports whether the node died before the parent-death signal was
// (re-)armed: the status pipe has no reader any more.
func parentGone() bool {
	fds := []unix.PollFd{{Fd: initspec.StatusFD}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
