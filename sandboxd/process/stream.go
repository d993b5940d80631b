package process

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/keepalive"
	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// Start starts a process and streams its events. At the deadline of the request, which
// Connect-Timeout-Ms sets, the process is killed with its whole group, even if the client
// has left; if the process itself has exited, the processes that it left in the background
// go on. If only the client leaves, the process goes on.
func (s *Service) Start(ctx context.Context, req *connect.Request[processpb.StartRequest], stream *connect.ServerStream[processpb.StartResponse]) error {
	user, err := s.caller.User(req.Header())
	if err != nil {
		return err
	}
	cmd, err := command(req.Msg.GetProcess(), user, s.caller)
	if err != nil {
		return err
	}
	p, run, err := s.start(ctx, cmd, req.Msg, user)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		stop := s.holding.at(deadline, p.timeOut)
		wait := run
		run = func() {
			defer stop()
			wait()
		}
	}
	sub := p.hub.subscribe()
	if err := s.registry.add(p, run); err != nil {
		p.hub.unsubscribe(sub)
		_, _ = p.signal(syscall.SIGKILL)
		run()
		return err
	}
	return s.follow(ctx, p, sub, keepalive.Interval(req.Header()), func(event *processpb.ProcessEvent) error {
		return stream.Send(&processpb.StartResponse{Event: event})
	})
}

// Connect attaches the client to a process, also to one that has ended and is still kept.
func (s *Service) Connect(ctx context.Context, req *connect.Request[processpb.ConnectRequest], stream *connect.ServerStream[processpb.ConnectResponse]) error {
	p, err := s.registry.find(req.Msg.GetProcess(), true)
	if err != nil {
		return err
	}
	return s.follow(ctx, p, p.hub.subscribe(), keepalive.Interval(req.Header()), func(event *processpb.ProcessEvent) error {
		return stream.Send(&processpb.ConnectResponse{Event: event})
	})
}

// follow sends the events of a process until the process or the request ends, or the client
// has not read for too long.
func (s *Service) follow(ctx context.Context, p *proc, sub *subscription, interval time.Duration, write func(*processpb.ProcessEvent) error) error {
	leave := func() { p.hub.unsubscribe(sub) }
	defer leave()
	send := s.unread.watch(ctx, write, leave)
	if err := send(startEvent(p.pid)); err != nil {
		return err
	}
	idle := time.NewTimer(interval)
	defer idle.Stop()
	for {
		event := keepaliveEvent()
		select {
		case data, running := <-sub.events:
			if !running {
				if deadlinePassed(ctx) { // the deadline ended the process, even if ctx is not done yet
					return errTimeout()
				}
				return send(p.hub.endEvent())
			}
			event = data
		case <-sub.gone:
			return errUnread(s.unread.limit)
		case <-idle.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return errTimeout()
			}
			return connect.NewError(connect.CodeCanceled, ctx.Err())
		}
		if err := send(event); err != nil {
			return err
		}
		idle.Reset(interval)
	}
}

// deadlinePassed reports whether the deadline of the request has passed.
func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func errTimeout() error {
	return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the timeout of the request has passed"))
}
