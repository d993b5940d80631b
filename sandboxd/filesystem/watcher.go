package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// TempPrefix begins the names of files that sandboxd is still writing. Watchers
// do not see them.
const TempPrefix = ".sandboxd-"

// maxPending bounds the events that wait for a client.
const maxPending = 10_000

var errOverflow = connect.NewError(connect.CodeResourceExhausted, errors.New("watcher overflow: events were lost, list the directory again"))

// request is what both watch methods ask for.
type request interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// watcher turns what inotify says of one directory into events.
type watcher struct {
	notify       *fsnotify.Watcher
	root         string // without symbolic links
	recursive    bool
	includeEntry bool
	namer        Namer

	mu       sync.Mutex // guards written and overflow
	written  []string   // paths that sandboxd itself wrote
	overflow bool
	wake     chan struct{} // holds one token when written or overflow changed
	closed   chan struct{}
}

func newWatcher(path string, req request, namer Namer) (*watcher, error) {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, wireError(path, err)
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, wireError(path, err)
	}
	if !info.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %s not a directory", path))
	}
	if !req.GetAllowNetworkMounts() && onNetwork(root) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %s is on a network mount, where changes by others go unseen: allow network mounts to watch it", path))
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("creating a watcher: %w", err))
	}
	w := &watcher{
		notify: notify, root: root, recursive: req.GetRecursive(), includeEntry: req.GetIncludeEntry(), namer: namer,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	if err := w.add(root, nil); err != nil {
		_ = notify.Close()
		return nil, wireError(path, err)
	}
	return w, nil
}

// onNetwork reports whether a directory is on NFS or SMB.
func onNetwork(path string) bool {
	var stat unix.Statfs_t
	if unix.Statfs(path, &stat) != nil {
		return false
	}
	switch uint32(stat.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return true
	}
	return false
}

// add watches a directory and, when recursive, those below it. It tells found,
// which may be nil, of all that is there already.
func (w *watcher) add(dir string, found func(path string) error) error {
	if err := w.notify.Add(dir); err != nil || !w.recursive {
		return err
	}
	children, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		path := filepath.Join(dir, child.Name())
		if child.IsDir() { // watched before it is told of: who hears of it may write there at once
			if err := w.notify.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if found != nil && !unfinished(path) {
			if err := found(path); err != nil {
				return err
			}
		}
		if child.IsDir() {
			if err := w.add(path, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// unfinished reports whether sandboxd is still writing a file.
func unfinished(path string) bool { return strings.HasPrefix(filepath.Base(path), TempPrefix) }

// run gives events to emit until the context ends, the watcher is closed, events
// were lost or emit fails. idle is called at each pause of that length.
func (w *watcher) run(ctx context.Context, interval time.Duration, emit func(*filesystempb.FilesystemEvent) error, idle func() error) error {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		var err error
		select {
		case event := <-w.notify.Events:
			err = w.handle(event, emit)
		case err = <-w.notify.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				err = errOverflow
			}
		case <-w.wake:
			err = w.handleWritten(emit)
		case <-timer.C:
			err = idle()
		case <-w.closed:
			return connect.NewError(connect.CodeUnavailable, errors.New("the watcher was closed"))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the timeout of the request has passed"))
			}
			return connect.NewError(connect.CodeCanceled, ctx.Err())
		}
		if err != nil {
			return err
		}
		timer.Reset(interval)
	}
}

var eventTypes = []struct {
	op  fsnotify.Op
	typ filesystempb.EventType
}{
	{fsnotify.Create, filesystempb.EventType_EVENT_TYPE_CREATE},
	{fsnotify.Write, filesystempb.EventType_EVENT_TYPE_WRITE},
	{fsnotify.Remove, filesystempb.EventType_EVENT_TYPE_REMOVE},
	{fsnotify.Rename, filesystempb.EventType_EVENT_TYPE_RENAME},
	{fsnotify.Chmod, filesystempb.EventType_EVENT_TYPE_CHMOD},
}

func (w *watcher) handle(event fsnotify.Event, emit func(*filesystempb.FilesystemEvent) error) error {
	if event.Name == "" || unfinished(event.Name) {
		return nil
	}
	for _, t := range eventTypes {
		if event.Has(t.op) {
			if err := emit(w.event(event.Name, t.typ)); err != nil {
				return err
			}
		}
	}
	if !w.recursive || !event.Has(fsnotify.Create) {
		return nil
	}
	if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
		return nil
	}
	// What was made in a new directory before it was watched is told now.
	err := w.add(event.Name, func(path string) error {
		return emit(w.event(path, filesystempb.EventType_EVENT_TYPE_CREATE))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *watcher) handleWritten(emit func(*filesystempb.FilesystemEvent) error) error {
	w.mu.Lock()
	paths, overflow := w.written, w.overflow
	w.written, w.overflow = nil, false
	w.mu.Unlock()
	for _, path := range paths {
		if err := emit(w.event(path, filesystempb.EventType_EVENT_TYPE_WRITE)); err != nil {
			return err
		}
	}
	if overflow {
		return errOverflow
	}
	return nil
}

func (w *watcher) event(path string, typ filesystempb.EventType) *filesystempb.FilesystemEvent {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		name = path
	}
	event := &filesystempb.FilesystemEvent{Name: valid(name), Type: typ}
	if w.includeEntry && typ != filesystempb.EventType_EVENT_TYPE_REMOVE && typ != filesystempb.EventType_EVENT_TYPE_RENAME {
		event.Entry, _ = Describe(path, w.namer) // nil when it is gone again
	}
	return event
}

// wrote notes a write of sandboxd's own, which inotify shows as a rename only.
func (w *watcher) wrote(path string) {
	dir := filepath.Dir(path)
	if dir != w.root && !(w.recursive && strings.HasPrefix(dir, strings.TrimSuffix(w.root, "/")+"/")) {
		return
	}
	w.mu.Lock()
	if len(w.written) < maxPending {
		w.written = append(w.written, path)
	} else {
		w.overflow = true
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
