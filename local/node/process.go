package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// process is the main process of one run of a container. It is made by
// runtime.start and reaps itself; the fields after exited are set before
// exited is closed.
type process struct {
	cmd     *exec.Cmd
	spec    processSpec
	rt      *podRuntime
	ns      []*os.File // namespaces to enter for an exec, as joinable; nil without isolation
	cgroup  *cgroup
	freezer freezer
	dir     string // removed when the process is dead
	started time.Time

	exited    chan struct{}
	code      int
	oomKilled bool
	finished  time.Time
}

// watch reaps the process and removes what was made for it.
func (p *process) watch() {
	state, err := p.cmd.Process.Wait()
	p.code = 255
	if err == nil {
		p.code = exitCode(state)
	}
	if p.ns == nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what it left in its group
	}
	p.finished = time.Now()
	p.oomKilled = p.cgroup.oomKilled() && p.code == 128+int(syscall.SIGKILL)
	p.cgroup.remove()
	closeAll(p.ns...)
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	close(p.exited)
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// signal sends sig to the process, or to its group where it has no namespace.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.exited:
		return
	default:
	}
	if p.ns == nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
		return
	}
	_ = p.cmd.Process.Signal(sig)
}

// stop asks the process to end, waits at most grace or until kill is done,
// and kills it. When it returns the process is dead. The process must be thawed.
func (p *process) stop(kill context.Context, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	if grace > 0 && kill.Err() == nil {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.exited:
			return
		case <-timer.C:
		case <-kill.Done():
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// thawForEnd lets a frozen container run until it ends.
func (p *process) thawForEnd() {
	if err := p.freezer.end(p.cgroup); err != nil {
		p.rt.opts.Log.Error("thaw a container that is to end", "pod", p.spec.podName, "error", err)
	}
}

// streams of a command run inside a container; TTY needs Resize.
type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	tty            bool
	resize         <-chan api.TermSize
}

// exec runs a command in the container and returns its exit code. It ends with
// an error when ctx does (the command is killed then), when the command cannot
// be started, or when the container is not running.
func (p *process) exec(ctx context.Context, args []string, s streams) (int, error) {
	select {
	case <-p.exited:
		return 0, errors.New("the container is not running")
	default:
	}
	if len(args) == 0 {
		return 0, errors.New("no command")
	}
	if _, frozen := p.freezer.look(); frozen {
		return 0, errors.New("the container is frozen, since its sandbox is paused")
	}
	a := launch{helper: p.rt.helper, stdin: s.stdin, stdout: s.stdout, stderr: s.stderr, files: p.ns}
	a.spec = initspec.Spec{
		Args: args, Env: p.spec.env, Dir: p.spec.dir, UID: p.spec.uid, GID: p.spec.gid,
		Cgroups: p.cgroup.procs(), TTY: s.tty, Child: true,
	}
	if p.ns != nil {
		a.spec.KeepCaps, a.spec.NoNewPrivs, a.spec.NoUserNamespaces = keptCaps, true, true
		for i, ns := range joinable {
			a.spec.Join = append(a.spec.Join, initspec.Namespace{FD: initspec.FirstFD + i, Type: ns.typ})
		}
	}
	if s.tty {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, fmt.Errorf("make a pipe: %w", err)
		}
		a.resize = r
		go sendSizes(ctx, s.resize, w)
	}
	stdinR, stdin, err := stdinPipe(&a)
	if err != nil {
		return 0, err
	}
	cmd, err := p.rt.launcher.run(ctx, a)
	closeAll(a.resize, stdinR)
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

// keptCaps are the capabilities that processes of a pod may have, as far as the node has
// them. FSETID, which containers have on clusters too, keeps the set-group-ID bit of files
// that a restore gives to other groups.
var keptCaps = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_NET_BIND_SERVICE,
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
