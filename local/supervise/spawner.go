package supervise

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts processes that die with this one. The kernel sends the
// parent-death signal when the *thread* that made a child ends, so one
// goroutine keeps a thread of its own for as long as children may live.
type spawner struct {
	work chan func()
	once sync.Once
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start starts cmd in a process group of its own. Not after close.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread, and with it every child that is left.
func (s *spawner) close() {
	s.once.Do(func() { close(s.work) })
	<-s.done
}
