package filesystem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/keepalive"
)

// expireAfter is how long a watcher of CreateWatcher collects events without a call of
// GetWatcherEvents: then its client has gone without removing it.
const expireAfter = time.Hour

// collector keeps the events of a watcher until GetWatcherEvents returns them.
type collector struct {
	watcher *watcher
	expiry  *time.Timer

	mu     sync.Mutex // guards events and err
	events []*filesystempb.FilesystemEvent
	err    error // why events are missing; returned once
}

func (s *Service) watch(header http.Header, req request) (*watcher, error) {
	u, path, err := s.resolve(header, req.GetPath())
	if err != nil {
		return nil, err
	}
	var w *watcher
	err = u.Act(func() (err error) {
		w, err = newWatcher(u, path, req, s.caller)
		return err
	})
	if err != nil {
		return nil, wireError(path, err)
	}
	if err := s.watchers.add(w); err != nil {
		return nil, watchError(path, err)
	}
	return w, nil
}

// watchError returns the Connect error for a directory that cannot be watched.
func watchError(path string, err error) error {
	if answer := (*connect.Error)(nil); errors.As(err, &answer) {
		return err
	}
	if errors.Is(err, unix.ENOSPC) {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("too many directories are watched (raise fs.inotify.max_user_watches on the node): %w", err))
	}
	return wireError(path, err)
}

// WatchDir streams the events of a directory, with keepalives, until the client
// leaves. Lost events end it with resource_exhausted.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[filesystempb.WatchDirRequest], stream *connect.ServerStream[filesystempb.WatchDirResponse]) error {
	w, err := s.watch(req.Header(), req.Msg)
	if err != nil {
		return err
	}
	defer s.watchers.remove(w)
	if err := stream.Send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Start{Start: &filesystempb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	return w.run(ctx, keepalive.Interval(req.Header()),
		func(event *filesystempb.FilesystemEvent) error {
			return stream.Send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Filesystem{Filesystem: event}})
		},
		func() error {
			return stream.Send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Keepalive{Keepalive: &filesystempb.WatchDirResponse_KeepAlive{}}})
		})
}

// CreateWatcher begins to collect the events of a directory.
func (s *Service) CreateWatcher(_ context.Context, req *connect.Request[filesystempb.CreateWatcherRequest]) (*connect.Response[filesystempb.CreateWatcherResponse], error) {
	w, err := s.watch(req.Header(), req.Msg)
	if err != nil {
		return nil, err
	}
	id, c := rand.Text(), &collector{watcher: w}
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	if s.watchers.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("sandboxd is shutting down"))
	}
	s.watchers.named[id] = c
	c.expiry = time.AfterFunc(s.watchers.expireAfter, func() { s.watchers.unname(id) })
	s.watchers.loops.Go(func() {
		for c.fail(w.run(context.Background(), keepalive.Default, c.add, func() error { return nil })) {
		}
	})
	return connect.NewResponse(&filesystempb.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents returns the events since the last call. After lost events it
// fails once with resource_exhausted.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[filesystempb.GetWatcherEventsRequest]) (*connect.Response[filesystempb.GetWatcherEventsResponse], error) {
	s.watchers.mu.Lock()
	c := s.watchers.named[req.Msg.GetWatcherId()]
	if c != nil {
		c.expiry.Reset(s.watchers.expireAfter)
	}
	s.watchers.mu.Unlock()
	if c == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", req.Msg.GetWatcherId()))
	}
	events, err := c.take()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystempb.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher ends the collecting.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[filesystempb.RemoveWatcherRequest]) (*connect.Response[filesystempb.RemoveWatcherResponse], error) {
	if !s.watchers.unname(req.Msg.GetWatcherId()) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", req.Msg.GetWatcherId()))
	}
	return connect.NewResponse(&filesystempb.RemoveWatcherResponse{}), nil
}

func (c *collector) add(event *filesystempb.FilesystemEvent) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.events) - 1
	if last >= 0 && event.GetType() == filesystempb.EventType_EVENT_TYPE_WRITE && c.events[last].GetType() == event.GetType() && c.events[last].GetName() == event.GetName() {
		c.events[last] = event // many writes of one file count as one, with the latest entry
		return nil
	}
	if len(c.events) >= maxPending {
		c.err = errOverflow
		return nil
	}
	c.events = append(c.events, event)
	return nil
}

// fail notes the error with which a run ended, and reports whether to run again.
func (c *collector) fail(err error) bool {
	select {
	case <-c.watcher.closed:
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return errors.Is(err, errOverflow)
}

func (c *collector) take() ([]*filesystempb.FilesystemEvent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err, events := c.err, c.events
	c.err, c.events = nil, nil
	if err != nil {
		return nil, err
	}
	return events, nil
}
