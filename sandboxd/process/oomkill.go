package process

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// killFiles count the processes of this container that the kernel ended for lack of
// memory, in control groups of version 2 and of version 1.
var killFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// oomKills finds out which commands the kernel ended for lack of memory. The kernel says how
// many processes it ended, not which. So a command that died of a SIGKILL which sandboxd did
// not send counts as one of them if the number has grown since the command was started; each
// kill counts for one command only. The zero value finds none. It is safe for concurrent use.
type oomKills struct {
	file *os.File

	mu       sync.Mutex // guards assigned
	assigned int64      // how many of the kills were counted for a command
}

// openOOMKills opens the first of the files that exists. It is no error if there is none.
func openOOMKills(paths []string) (*oomKills, error) {
	for _, path := range paths {
		file, err := os.Open(path)
		if err == nil {
			return &oomKills{file: file}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return &oomKills{}, err
		}
	}
	return &oomKills{}, nil
}

// count returns how many processes the kernel has ended so far; 0 if that is not known.
func (k *oomKills) count() int64 {
	if k.file == nil {
		return 0
	}
	var buf [1024]byte
	n, _ := k.file.ReadAt(buf[:], 0) // io.EOF with all of it
	for line := range bytes.Lines(buf[:n]) {
		if text, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			number, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			return number
		}
	}
	return 0
}

// ended reports whether the kernel ended a command, or the last program of its shell, for
// lack of memory. state is that of the command after its end, atStart the count before its
// start.
func (k *oomKills) ended(state *os.ProcessState, atStart int64) bool {
	const bySignal = 128 // a shell's exit code for a program that a signal ended
	status, _ := state.Sys().(syscall.WaitStatus)
	if status.Signal() != syscall.SIGKILL && status.ExitStatus() != bySignal+int(syscall.SIGKILL) {
		return false
	}
	now := k.count()
	k.mu.Lock()
	defer k.mu.Unlock()
	from := max(atStart, k.assigned)
	if now <= from {
		return false
	}
	k.assigned = from + 1
	return true
}

func (k *oomKills) close() {
	if k.file != nil {
		_ = k.file.Close()
	}
}
