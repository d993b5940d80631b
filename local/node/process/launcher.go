package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// startTimeout bounds the way from fork to exec of the real command.
const startTimeout = 30 * time.Second

// execLinger is how long a command that was told to end, or whose output is
// still held open by others after its end, is waited for.
const execLinger = 2 * time.Second

// launcher starts processes on one thread that lives as long as it does: the
// kernel sends the parent-death signal when the forking thread ends, not only
// when the process does.
type launcher struct {
	work chan func()
	done chan struct{}
	once sync.Once
}

func newLauncher() *launcher {
	// A file that this process was started with, such as a folder of a shell, is none of a
	// container's. Go opens its own files so.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	l := &launcher{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case f := <-l.work:
				f()
			case <-l.done:
				return // ends the thread: kills what still runs
			}
		}
	}()
	return l
}

// close ends the thread, and with it every process still running.
func (l *launcher) close() { l.once.Do(func() { close(l.done) }) }

func (l *launcher) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	select {
	case l.work <- func() { result <- cmd.Start() }:
		return <-result
	case <-l.done:
		return errors.New("the node is stopping")
	}
}

// launch is one start of podinit.
type launch struct {
	helper     string
	spec       initspec.Spec
	cloneFlags uintptr
	files      []*os.File // the spec's descriptors, from initspec.FirstFD on
	stdin      io.Reader
	stdout     io.Writer
	stderr     io.Writer
	resize     *os.File // read end; nil without a terminal
	// held, if set, is called while podinit exists but has done nothing yet.
	held func(pid int) error
}

// run starts podinit and waits until it has executed the command, or, for a
// child, started it. After an error nothing runs.
// The end of ctx ends the wait for the start, not what was started.
func (l *launcher) run(ctx context.Context, a launch) (*exec.Cmd, error) {
	specR, specW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer closeAll(specW)
	statusR, statusW, err := os.Pipe()
	if err != nil {
		closeAll(specR)
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer closeAll(statusR)
	resize := a.resize
	if resize == nil {
		resize = specR // any open file keeps the numbers in place
	}
	cmd := exec.Command(a.helper)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.WaitDelay = execLinger
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.ExtraFiles = append([]*os.File{specR, statusW, resize}, a.files...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: a.cloneFlags, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err = l.start(cmd)
	closeAll(specR, statusW)
	if err != nil {
		return nil, fmt.Errorf("start the helper: %w", err)
	}
	if a.held != nil {
		err = a.held(cmd.Process.Pid)
	}
	if err == nil {
		err = json.NewEncoder(specW).Encode(&a.spec)
	}
	if err == nil {
		closeAll(specW)
		err = awaitStart(ctx, statusR)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return cmd, nil
}

func awaitStart(ctx context.Context, status *os.File) error {
	if err := status.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("await the start: %w", err)
	}
	stopped := context.AfterFunc(ctx, func() { _ = status.SetReadDeadline(time.Now()) })
	defer stopped()
	said, err := io.ReadAll(status)
	switch {
	case err != nil:
		return fmt.Errorf("await the start: %w", err)
	case len(said) > 0:
		return errors.New(string(said))
	}
	return nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // twice is fine
	}
}
