package filesystem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

const (
	defaultKeepalive = 90 * time.Second
	// maxWatchers bounds the watchers of a sandbox.
	maxWatchers = 1000
	// expireAfter is how long a watcher of CreateWatcher collects without being asked:
	// its client is gone without a word.
	expireAfter = time.Hour
)

// watchers are the watchers of one service.
type watchers struct {
	mu       sync.Mutex // guards all below
	notifier *notifier  // opened for the first watcher
	live     map[*watcher]struct{}
	named    map[string]*collector // those of CreateWatcher
	closed   bool
	loops    sync.WaitGroup

	expireAfter time.Duration // never written after the making
}

// collector keeps the events of a watcher until they are asked for.
type collector struct {
	watcher *watcher
	expiry  *time.Timer

	mu     sync.Mutex // guards events and err
	events []*filesystempb.FilesystemEvent
	err    error // why events are missing, told once
}

// add begins to tell a watcher what happens.
func (ws *watchers) add(w *watcher) error {
	ws.mu.Lock()
	if err := ws.mayAdd(); err != nil {
		ws.mu.Unlock()
		return err
	}
	ws.live[w] = struct{}{}
	n := ws.notifier
	ws.mu.Unlock()
	err := n.add(w) // which reads folders, maybe many
	if err != nil {
		ws.remove(w)
	}
	return err
}

// mayAdd refuses a watcher too many, and opens the notifier for the first one. Call
// with mu held.
func (ws *watchers) mayAdd() error {
	switch {
	case ws.closed:
		return connect.NewError(connect.CodeUnavailable, errors.New("sandboxd is shutting down"))
	case len(ws.live) >= maxWatchers:
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d watchers already", maxWatchers))
	case ws.notifier != nil:
		return nil
	}
	n, err := newNotifier()
	if err != nil {
		return connect.NewError(connect.CodeResourceExhausted, err)
	}
	ws.notifier = n
	return nil
}

// remove ends a watcher; it may be called again.
func (ws *watchers) remove(w *watcher) {
	ws.mu.Lock()
	_, live := ws.live[w]
	delete(ws.live, w)
	n := ws.notifier
	ws.mu.Unlock()
	if live {
		n.remove(w)
		close(w.closed)
	}
}

func (ws *watchers) close() {
	ws.mu.Lock()
	ws.closed = true
	var all []*watcher
	for w := range ws.live {
		all = append(all, w)
	}
	for _, c := range ws.named {
		c.expiry.Stop()
	}
	clear(ws.named)
	n := ws.notifier
	ws.mu.Unlock()
	for _, w := range all {
		ws.remove(w)
	}
	ws.loops.Wait()
	if n != nil {
		n.close()
	}
}

// unname ends a watcher of CreateWatcher and reports whether there was one.
func (ws *watchers) unname(id string) bool {
	ws.mu.Lock()
	c := ws.named[id]
	delete(ws.named, id)
	ws.mu.Unlock()
	if c == nil {
		return false
	}
	c.expiry.Stop()
	ws.remove(c.watcher)
	return true
}

// Wrote tells the watchers that sandboxd wrote a file, whose path has no symbolic
// links: inotify shows that as a rename only. It does not block for long.
func (s *Service) Wrote(path string) {
	s.watchers.mu.Lock()
	n := s.watchers.notifier
	s.watchers.mu.Unlock()
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell(filepath.Dir(path), path, unix.IN_MODIFY)
}

func (s *Service) watch(header http.Header, req request) (*watcher, error) {
	_, path, err := s.resolve(header, req.GetPath())
	if err != nil {
		return nil, err
	}
	w, err := newWatcher(path, req, s.caller)
	if err != nil {
		return nil, err
	}
	if err := s.watchers.add(w); err != nil {
		return nil, watchError(path, err)
	}
	return w, nil
}

// watchError is the answer to a directory that cannot be watched.
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
	return w.run(ctx, keepalive(req.Header()),
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
		for c.fail(w.run(context.Background(), defaultKeepalive, c.add, func() error { return nil })) {
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
	if len(c.events) >= maxPending {
		c.err = errOverflow
		return nil
	}
	c.events = append(c.events, event)
	return nil
}

// fail notes why a run ended and reports whether to run again.
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

func keepalive(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 || seconds > 24*60*60 {
		return defaultKeepalive
	}
	return time.Duration(seconds) * time.Second
}
