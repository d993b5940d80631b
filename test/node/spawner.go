package node

import (
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// spawner starts processes for PID 1, which also gets the orphans of other processes as its
// children. Only reap waits for children; it tells the caller of start how a process ended.
type spawner struct {
	// mu is held from a start until the child is in the map, so that reap does not reap a
	// child that is not in the map yet.
	mu       sync.Mutex
	children map[int]chan string
	started  chan struct{} // wakes reap, which has no children at first
}

func newSpawner() *spawner {
	return &spawner{children: map[int]chan string{}, started: make(chan struct{}, 1)}
}

// start starts a process in a session of its own. The channel gets one line, how
// the process ended.
func (s *spawner) start(path string, args []string, log *os.File) (<-chan string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{
		Dir: "/", Files: []*os.File{null, log, log}, Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan string, 1)
	s.children[p.Pid] = ended
	_ = p.Release() // reap waits for it
	select {
	case s.started <- struct{}{}:
	default:
	}
	return ended, nil
}

// reap waits for children for ever.
func (s *spawner) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			<-s.started
			continue
		case err != nil:
			continue
		}
		s.mu.Lock()
		ended := s.children[pid]
		delete(s.children, pid)
		s.mu.Unlock()
		if ended == nil {
			continue
		}
		if status.Signaled() {
			ended <- status.Signal().String()
		} else {
			ended <- "exit code " + strconv.Itoa(status.ExitStatus())
		}
	}
}
