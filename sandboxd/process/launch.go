package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Launched is a running process with the streams of its exec.Cmd, which no request of
// the process service sees. Package sudo has them. It is safe for concurrent use.
type Launched struct {
	p   *proc
	log func()
}

// Launch starts a command as the service starts its own: more likely than sandboxd to
// be ended for lack of memory. Its streams must be files, and it must have a session of
// its own (SysProcAttr.Setsid). The service does not end it at Close. Call Wait.
func (s *Service) Launch(cmd *exec.Cmd) (*Launched, error) {
	p := &proc{cmd: cmd, exited: make(chan struct{}), done: make(chan struct{})}
	if err := s.begin(context.Background(), p); err != nil {
		return nil, err
	}
	return &Launched{p: p, log: func() { s.logStarved(p) }}, nil
}

// Wait returns when the process has ended. Call once.
func (l *Launched) Wait() *os.ProcessState {
	if l.p.run(nil) {
		l.log()
	}
	return l.p.cmd.ProcessState
}

// Signal signals the process and its group; one that is over is left alone.
func (l *Launched) Signal(sig syscall.Signal) { _, _ = l.p.signal(sig) }

// Abandon kills the process and its group, unless the process itself has exited: what
// it left in the background, such as a server, goes on.
func (l *Launched) Abandon() { l.p.timeOut() }

// begin starts a process with the commands' score, once the sandbox is not frozen and if
// ctx has not ended by then.
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
