package stack

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// KillPod kills the processes of a pod: children of a stack's node that have
// the pod's UID in their environment. It returns how many it killed.
func KillPod(node int, uid string) (killed int) {
	eachOfPod(node, uid, func(process *os.Process) {
		if process.Signal(syscall.SIGKILL) == nil {
			killed++
		}
	})
	return killed
}

// PodPID is one of the processes that KillPod would kill, 0 if there is none.
func PodPID(node int, uid string) (pid int) {
	eachOfPod(node, uid, func(process *os.Process) { pid = process.Pid })
	return pid
}

func eachOfPod(node int, uid string, f func(*os.Process)) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || parentOf(dir) != node {
			continue
		}
		// Held before it is looked at, so that its number cannot become another's.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00POD_UID="+uid+"\x00")) && parentOf(dir) == node {
			f(process)
		}
		_ = process.Release()
	}
}

// parentOf reads the parent's PID from a folder of /proc, 0 if it is gone.
func parentOf(dir string) int {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	// The name, in brackets, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
