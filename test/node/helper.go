package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// The roles in which a test binary is started again, and what they print on standard output.
const (
	roleKeeper = "keeper"
	roleInit   = "init"

	saysPID     = "pid "
	saysStarted = "started"
)

// Helper does not return in a process that this package has started. TestMain
// calls it before anything else.
func Helper() {
	role, state := os.Getenv(roleEnv), os.Getenv(stateEnv)
	var err error
	switch role {
	case "":
		return
	case roleKeeper:
		err = keep(state)
	case roleInit:
		err = runInit(state)
	default:
		err = fmt.Errorf("there is no role %q", role)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "node: %s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keep runs init until standard input ends, and then removes the node's control groups and
// files.
func keep(state string) error {
	// The kernel kills init with the thread that started it.
	runtime.LockOSThread()
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), roleEnv+"="+roleInit)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Setsid:    true,
		Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the node's first process: %w", err)
	}
	fmt.Printf("%s%d\n", saysPID, child.Process.Pid)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = child.Process.Kill()
	}()
	died := child.Wait()
	name := filepath.Base(state)
	if err := removeGroups(name); err != nil {
		return fmt.Errorf("remove what the node left: %w", errors.Join(err, died))
	}
	// If the node ended by itself, its logs stay for the error of the test.
	_, _ = io.Copy(io.Discard, os.Stdin)
	return os.RemoveAll(state)
}
