package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// Retention is how long the end of a process is kept for clients that attach again.
const Retention = 30 * time.Second

// Options are the settings of a Service.
type Options struct {
	// Retention is how long the end of a process is kept; zero means the constant.
	Retention time.Duration
	// Unread is how long a client may take no byte of its stream while bytes wait for it; zero
	// means 30 s.
	Unread time.Duration
	// Connection returns the connection of a request's context; with nil, clients that do not
	// read are not noticed.
	Connection func(context.Context) net.Conn
	// Score is this process's /proc/self/oom_score_adj, see OpenScore; with nil, commands
	// start with sandboxd's own score. The service closes it.
	Score *os.File
	// Log gets a line for each failure that fails no request, and for each command that the
	// kernel ended for lack of memory; nil writes none.
	Log io.Writer
}

// Caller tells the service on whose behalf a request is.
type Caller interface {
	// User returns the user of a request; its errors are Connect errors.
	User(header http.Header) (users.User, error)
	// Own returns the user that sandboxd runs as.
	Own() users.User
	// Workdir is the default working directory; empty means the user's home.
	Workdir() string
	// ImageEnv returns the variables of the image that commands get: at least PATH.
	ImageEnv() map[string]string
	// Env is the sandbox's environment, which every command gets.
	Env() map[string]string
}

// Service implements processpb.ProcessHandler. It is safe for concurrent use.
type Service struct {
	caller   Caller
	registry registry
	holding  holding
	score    *oomScore
	kills    *oomKills
	unread   unread
	left     left
	log      io.Writer
}

var _ processpb.ProcessHandler = (*Service)(nil)

// New returns a service. If it cannot read or set the scores, or cannot read the kills for
// lack of memory, it logs that and works without.
func New(caller Caller, options Options) *Service {
	if options.Retention == 0 {
		options.Retention = Retention
	}
	if options.Log == nil {
		options.Log = io.Discard
	}
	if options.Unread == 0 {
		options.Unread = unreadFor
	}
	s := &Service{caller: caller, log: options.Log, registry: registry{
		retention: options.Retention,
		procs:     map[uint32]*proc{},
		expiry:    map[*proc]*time.Timer{},
	}}
	s.unread.limit, s.unread.connection = options.Unread, options.Connection
	var err, err2 error
	s.score, err = newOOMScore(options.Score)
	s.kills, err2 = openOOMKills(killFiles)
	if err := errors.Join(err, err2); err != nil {
		_, _ = fmt.Fprintln(s.log, "sandboxd:", err)
	}
	return s
}

// Close terminates every process, kills those that are left when the context ends, and
// returns when all have ended. Call it once.
func (s *Service) Close(ctx context.Context) {
	s.registry.close(ctx)
	s.left.close()
	s.score.close()
	s.kills.close()
}

// List returns the running processes.
func (s *Service) List(context.Context, *connect.Request[processpb.ListRequest]) (*connect.Response[processpb.ListResponse], error) {
	return connect.NewResponse(&processpb.ListResponse{Processes: s.registry.list()}), nil
}

// Update resizes a terminal.
func (s *Service) Update(_ context.Context, req *connect.Request[processpb.UpdateRequest]) (*connect.Response[processpb.UpdateResponse], error) {
	p, err := s.registry.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if req.Msg.GetPty() != nil {
		if p.terminal == nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
		}
		if err := p.resize(req.Msg.GetPty()); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
	}
	return connect.NewResponse(&processpb.UpdateResponse{}), nil
}

// SendInput writes to a process and returns when the process has read all of it.
func (s *Service) SendInput(ctx context.Context, req *connect.Request[processpb.SendInputRequest]) (*connect.Response[processpb.SendInputResponse], error) {
	p, err := s.registry.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if err := p.input.write(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&processpb.SendInputResponse{}), nil
}

// StreamInput writes to one process, piece by piece in order.
func (s *Service) StreamInput(ctx context.Context, stream *connect.ClientStream[processpb.StreamInputRequest]) (*connect.Response[processpb.StreamInputResponse], error) {
	var p *proc
	for stream.Receive() {
		switch event := stream.Msg().GetEvent().(type) {
		case *processpb.StreamInputRequest_Start:
			found, err := s.registry.find(event.Start.GetProcess(), false)
			if err != nil {
				return nil, err
			}
			p = found
		case *processpb.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("data before the start event"))
			}
			if err := p.input.write(ctx, event.Data.GetInput()); err != nil {
				return nil, err
			}
		case *processpb.StreamInputRequest_Keepalive:
		default:
			return nil, connect.NewError(connect.CodeUnimplemented, errors.New("invalid event type: send start, data or keepalive"))
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&processpb.StreamInputResponse{}), nil
}

// SendSignal signals the whole process group.
func (s *Service) SendSignal(_ context.Context, req *connect.Request[processpb.SendSignalRequest]) (*connect.Response[processpb.SendSignalResponse], error) {
	p, err := s.registry.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	var sig syscall.Signal
	switch req.Msg.GetSignal() {
	case processpb.Signal_SIGNAL_SIGKILL:
		sig = syscall.SIGKILL
	case processpb.Signal_SIGNAL_SIGTERM:
		sig = syscall.SIGTERM
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("invalid signal: only SIGKILL and SIGTERM can be sent"))
	}
	running, err := p.signal(sig)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	if !running {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the process has ended"))
	}
	return connect.NewResponse(&processpb.SendSignalResponse{}), nil
}

// CloseStdin ends the standard input of a process without a terminal.
func (s *Service) CloseStdin(_ context.Context, req *connect.Request[processpb.CloseStdinRequest]) (*connect.Response[processpb.CloseStdinResponse], error) {
	p, err := s.registry.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if p.input.terminal {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal's input cannot be closed: send Ctrl+D (0x04) instead"))
	}
	p.input.close()
	return connect.NewResponse(&processpb.CloseStdinResponse{}), nil
}
