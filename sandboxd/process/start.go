package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// start starts cmd with pipes or a terminal, as the request asks. The returned process is
// running, and nothing reads its output yet: the caller subscribes, and then calls the
// returned function, which returns when the process has ended.
func (s *Service) start(ctx context.Context, cmd *exec.Cmd, req *processpb.StartRequest, user users.User) (*proc, func(), error) {
	p := &proc{config: req.GetProcess(), tag: req.Tag, cmd: cmd, exited: make(chan struct{}), done: make(chan struct{})}
	var child []*os.File
	defer func() { closeAll(child) }()
	var err error
	if req.GetPty() != nil {
		child, err = p.openTerminal(req.GetPty(), user)
	} else {
		child, err = p.openPipes(req.Stdin == nil || req.GetStdin(), user)
	}
	if err == nil {
		err = s.begin(ctx, p)
	}
	if err != nil {
		for _, o := range p.outputs {
			_ = o.file.Close()
		}
		p.input.close()
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("error starting process '%s': %w", req.GetProcess().GetCmd(), err))
	}
	return p, func() {
		if p.run(&s.left) {
			s.logStarved(p)
		}
	}, nil
}

func (p *proc) openPipes(stdin bool, user users.User) (child []*os.File, err error) {
	if stdin {
		r, w, err := os.Pipe()
		if err != nil {
			return child, err
		}
		child, p.cmd.Stdin = append(child, r), r
		p.input.use(w, false)
	}
	for _, stream := range []struct {
		set   func(*os.File)
		event func([]byte) *processpb.ProcessEvent
	}{
		{func(f *os.File) { p.cmd.Stdout = f }, stdoutEvent},
		{func(f *os.File) { p.cmd.Stderr = f }, stderrEvent},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			return child, err
		}
		stream.set(w)
		child, p.outputs = append(child, w), append(p.outputs, output{r, stream.event})
	}
	return child, give(child, p.cmd, user)
}

// give makes the user the owner of the streams, so that a command can reopen /dev/stdout.
func give(files []*os.File, cmd *exec.Cmd, user users.User) error {
	if cmd.SysProcAttr.Credential == nil {
		return nil
	}
	for _, f := range files {
		if err := f.Chown(int(user.UID), -1); err != nil {
			return err
		}
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
