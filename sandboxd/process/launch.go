package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// Launched is a process that Launch or LaunchAs started. It has the streams of its
// exec.Cmd, and no request of the process service finds it. It is safe for concurrent use.
type Launched struct {
	p   *proc
	log func()
}

// Launch starts a command, which the kernel ends before sandboxd when memory is short, like
// the service's own commands. The command's streams must be files, and it must have a session
// of its own (SysProcAttr.Setsid). Close does not end it. The caller must call Wait. While the
// sandbox is frozen Launch waits; it fails if ctx ends before.
func (s *Service) Launch(ctx context.Context, cmd *exec.Cmd) (*Launched, error) {
	p := &proc{cmd: cmd, exited: make(chan struct{}), done: make(chan struct{})}
	if err := s.begin(ctx, p); err != nil {
		return nil, err
	}
	return &Launched{p: p, log: func() { s.logStarved(p) }}, nil
}

// LaunchAs starts a command as a user, in the environment and the working directory that the
// user's commands get, without standard input and with its output to a file. It is otherwise as
// Launch.
func (s *Service) LaunchAs(user users.User, argv []string, output *os.File) (*Launched, error) {
	cmd, err := command(&processpb.ProcessConfig{Cmd: argv[0], Args: argv[1:]}, user, s.caller)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = output, output
	return s.Launch(context.Background(), cmd)
}

// Wait returns when the process has ended. Call once.
func (l *Launched) Wait() *os.ProcessState {
	if l.p.run(nil) {
		l.log()
	}
	return l.p.cmd.ProcessState
}

// Signal signals the process and its group, unless the process has ended.
func (l *Launched) Signal(sig syscall.Signal) { _, _ = l.p.signal(sig) }

// Abandon kills the process and its group, unless the process itself has exited: processes
// that it left in the background, such as a server, go on.
func (l *Launched) Abandon() { l.p.timeOut() }

// begin starts a process with the commands' score. It waits while the sandbox is frozen, and
// fails if ctx ends before.
func (s *Service) begin(ctx context.Context, p *proc) error {
	forked, err := s.holding.starting(ctx)
	if err != nil {
		return err
	}
	defer forked()
	kills := s.kills.count()
	p.starved = func(state *os.ProcessState) bool { return s.kills.ended(state, kills) }
	if err := s.score.start(p.cmd.Start); err != nil {
		return err
	}
	p.pid = uint32(p.cmd.Process.Pid)
	return nil
}

func (s *Service) logStarved(p *proc) {
	_, _ = fmt.Fprintf(s.log, "sandboxd: out of memory: the kernel ended the command with pid %d\n", p.pid)
}
