package chaos

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// gatewayPID waits until up.json names a running process for the i-th gateway
// that is not the former one, and returns it.
func gatewayPID(t *testing.T, i, former int) (pid int) {
	t.Helper()
	return waitPID(t, "the gateway's", former, func(up stack.UpFile) int { return up.Gateways[i].Pids["gateway"] })
}

// controllerPID is gatewayPID for the controller.
func controllerPID(t *testing.T, former int) (pid int) {
	t.Helper()
	return waitPID(t, "the controller's", former, func(up stack.UpFile) int { return up.Pids["controller"] })
}

func waitPID(t *testing.T, whose string, former int, in func(stack.UpFile) int) (pid int) {
	t.Helper()
	now := &stack.Stack{State: shared.State}
	shared.Eventually(t, 30*time.Second, whose+" pid in up.json", func() (bool, string) {
		if err := now.Reload(); err != nil {
			return false, err.Error()
		}
		pid = in(now.Up)
		return pid > 1 && pid != former, fmt.Sprint(pid)
	})
	return pid
}

// waitReaped waits until a process is gone.
func waitReaped(t *testing.T, pid int) {
	t.Helper()
	shared.Eventually(t, 10*time.Second, fmt.Sprintf("process %d to be gone", pid), func() (bool, string) {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return os.IsNotExist(err), "it is there"
	})
}

// signal sends a signal to a gateway of this stack, and to no other process.
func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := signalOurs(pid, "gateway", s); err != nil {
		t.Fatal(err)
	}
}

// signalOurs sends a signal to a process of this stack that runs a command of
// sandlane's, or any if that is empty, and to no other process.
func signalOurs(pid int, command string, s syscall.Signal) error {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return fmt.Errorf("find out what process %d is: %w", pid, err)
	}
	args := strings.Split(string(line), "\x00")
	if !strings.Contains(string(line), shared.State) || command != "" && (len(args) < 2 || args[1] != command) {
		return fmt.Errorf("process %d is %q, no %s of this stack", pid, args, command)
	}
	return syscall.Kill(pid, s)
}
