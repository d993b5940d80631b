// Package process runs the processes of the local node's containers: Runner.Start starts a run of a
// container, Process.Exec a command inside it, and Target probes it and runs its hooks. Limits come
// from package cgroups, roots from package rootfs, and podinit is the first program of each process.
// It decides nothing: package node says when a container starts, ends, and starts again.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/cgroups"
	"github.com/sandlane/sandlane/local/node/initspec"
	"github.com/sandlane/sandlane/local/node/removal"
)

// Process is the main process of one run of a container. It is made by
// Runner.Start and reaps itself; the fields after Exited are set before
// Exited is closed.
type Process struct {
	cmd     *exec.Cmd
	spec    Spec
	runner  *Runner
	ns      []*os.File // namespaces to enter for an exec, as joinable; nil without isolation
	nsMu    sync.Mutex // guards the files of ns
	nsGone  bool       // they are closed; guarded by nsMu
	cgroup  *cgroups.Group
	dir     string // removed when the process is dead
	Started time.Time

	Exited    chan struct{}
	Code      int
	OOMKilled bool
	Finished  time.Time
}

// watch reaps the process and removes what was made for it.
func (p *Process) watch() {
	state, err := p.cmd.Process.Wait()
	p.Code = 255
	if err == nil {
		p.Code = exitCode(state)
	}
	if p.ns == nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what it left in its group
	}
	p.Finished = time.Now()
	p.OOMKilled = p.cgroup.OOMKilled() && p.Code == 128+int(syscall.SIGKILL)
	p.cgroup.Remove()
	p.leaveNamespaces()
	if p.dir != "" {
		_ = removal.Tree(p.dir)
	}
	close(p.Exited)
}

var errNotRunning = errors.New("the container is not running")

// namespaces returns the process's namespaces as files of the caller's, who closes them: a
// number of the process's own may stand for another container's namespace as soon as it has
// ended. nil without isolation; errNotRunning after the end.
func (p *Process) namespaces() (files []*os.File, err error) {
	p.nsMu.Lock()
	defer p.nsMu.Unlock()
	if p.nsGone {
		return nil, errNotRunning
	}
	for _, f := range p.ns {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(files...)
			return nil, fmt.Errorf("open a namespace of the container: %w", err)
		}
		files = append(files, os.NewFile(uintptr(fd), f.Name()))
	}
	return files, nil
}

func (p *Process) leaveNamespaces() {
	p.nsMu.Lock()
	defer p.nsMu.Unlock()
	p.nsGone = true
	closeAll(p.ns...)
}

// PID is the process's number on the machine.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// signal sends sig to the process, or to its group where it has no namespace.
func (p *Process) signal(sig syscall.Signal) {
	select {
	case <-p.Exited:
		return
	default:
	}
	if p.ns == nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
		return
	}
	_ = p.cmd.Process.Signal(sig)
}

// Stop asks the process to end, waits at most grace or until kill is done,
// and kills it. When it returns the process is dead.
func (p *Process) Stop(kill context.Context, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	if grace > 0 && kill.Err() == nil {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.Exited:
			return
		case <-timer.C:
		case <-kill.Done():
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.Exited
}

// Streams of a command run inside a container; TTY needs Resize.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	Resize         <-chan api.TermSize
}

// Exec runs a command in the container and returns its exit code. It ends with
// an error when ctx does (the command is killed then), when the command cannot
// be started, or when the container is not running.
func (p *Process) Exec(ctx context.Context, args []string, s Streams) (int, error) {
	select {
	case <-p.Exited:
		return 0, errNotRunning
	default:
	}
	if len(args) == 0 {
		return 0, errors.New("no command")
	}
	entered, err := p.namespaces()
	if err != nil {
		return 0, err
	}
	defer closeAll(entered...)
	a := launch{helper: p.runner.helper, stdin: s.Stdin, stdout: s.Stdout, stderr: s.Stderr, files: entered}
	a.spec = initspec.Spec{
		Args: args, Env: p.spec.Env, Dir: p.spec.Dir, UID: p.spec.UID, GID: p.spec.GID,
		Cgroups: p.cgroup.Procs(), TTY: s.TTY, Child: true,
	}
	if p.ns != nil {
		a.spec.KeepCaps, a.spec.NoNewPrivs, a.spec.NoUserNamespaces = KeptCaps, true, true
		for i, ns := range joinable {
			a.spec.Join = append(a.spec.Join, initspec.Namespace{FD: initspec.FirstFD + i, Type: ns.typ})
		}
	}
	if s.TTY {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, fmt.Errorf("make a pipe: %w", err)
		}
		a.resize = r
		go sendSizes(ctx, s.Resize, w)
	}
	stdinR, stdin, err := stdinPipe(&a)
	if err != nil {
		return 0, err
	}
	cmd, err := p.runner.launcher.run(ctx, a)
	closeAll(append(entered, a.resize, stdinR)...)
	if err != nil {
		closeAll(stdin)
		return 0, fmt.Errorf("run %q in the container: %w", args[0], err)
	}
	stopped := context.AfterFunc(ctx, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // podinit kills the command
		time.AfterFunc(execLinger, func() { _ = cmd.Process.Kill() })
	})
	defer stopped()
	_ = cmd.Wait()
	closeAll(stdin)
	if ctx.Err() != nil {
		return 0, fmt.Errorf("run %q in the container: %w", args[0], context.Cause(ctx))
	}
	return exitCode(cmd.ProcessState), nil
}

// stdinPipe replaces the launch's reader by a pipe that is copied into, since
// exec.Cmd.Wait would wait for a read that may never return.
// The caller closes r once the process is started, w when it has ended.
func stdinPipe(a *launch) (r, w *os.File, err error) {
	if a.stdin == nil {
		return nil, nil, nil
	}
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	source := a.stdin
	a.stdin = r
	go func() {
		_, _ = io.Copy(w, source)
		closeAll(w)
	}()
	return r, w, nil
}

func sendSizes(ctx context.Context, sizes <-chan api.TermSize, w *os.File) {
	defer closeAll(w)
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			line := strconv.Itoa(int(size.Height)) + " " + strconv.Itoa(int(size.Width)) + "\n"
			if _, err := w.WriteString(line); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// KeptCaps are the capabilities that processes of a pod may have, as far as the node has
// them. FSETID and SETFCAP, which containers have on clusters too, keep the set-group-ID bit of
// files that a restore gives to other groups, and files' capabilities.
var KeptCaps = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETFCAP,
}

// joinable are the namespaces of a container that an exec enters: the pod's
// network first, the mount namespace last.
var joinable = []struct {
	name string
	typ  int
}{
	{"net", unix.CLONE_NEWNET},
	{"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS},
	{"pid", unix.CLONE_NEWPID},
	{"mnt", unix.CLONE_NEWNS},
}

// openNamespaces opens those that the process was cloned into: all but the
// network's, which podinit enters later.
func openNamespaces(pid int) (files []*os.File, err error) {
	for _, ns := range joinable[1:] {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, ns.name))
		if err != nil {
			closeAll(files...)
			return nil, fmt.Errorf("open the container's namespaces: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}
