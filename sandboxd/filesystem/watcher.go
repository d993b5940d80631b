package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// maxPending bounds the events that wait for a client.
const maxPending = 10_000

var errOverflow = connect.NewError(connect.CodeResourceExhausted, errors.New("watcher overflow: events were lost, list the directory again"))

// request has the fields of the requests of both watch methods.
type request interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// watcher queues the events of one directory for one client.
type watcher struct {
	user         users.User
	root         string // without symbolic links; guarded by the notifier's mutex
	recursive    bool
	includeEntry bool
	namer        Namer

	mu      sync.Mutex // guards pending and lost
	pending []change
	lost    bool          // some events are missing
	changed chan struct{} // holds one token when pending or lost changed
	closed  chan struct{}
}

// change is an event in the queue.
type change struct {
	path, name string // absolute, and below the root
	typ        filesystempb.EventType
}

// newWatcher makes a watcher of a directory. It reads the directory with this thread's
// rights, which must be the user's.
func newWatcher(u users.User, path string, req request, namer Namer) (*watcher, error) {
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
	return &watcher{
		user: u, root: root, recursive: req.GetRecursive(), includeEntry: req.GetIncludeEntry(), namer: namer,
		changed: make(chan struct{}, 1), closed: make(chan struct{}),
	}, nil
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

// unfinished reports whether Move is still copying an entry.
func unfinished(path string) bool { return strings.HasPrefix(filepath.Base(path), TempPrefix) }

// covers reports whether the watcher gets the events of the entries of a directory. Call it,
// and nameOf, with the notifier's mutex held.
func (w *watcher) covers(dir string) bool {
	return dir == w.root || w.recursive && within(dir, w.root)
}

// nameOf returns a path relative to the watched directory, as events have it.
func (w *watcher) nameOf(path string) string {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return path
	}
	return name
}

// push queues the events of a mask. It does not block.
func (w *watcher) push(path, name string, mask uint32) {
	w.mu.Lock()
	for _, t := range eventTypes {
		last := len(w.pending) - 1
		switch {
		case mask&t.mask == 0:
		case t.typ == filesystempb.EventType_EVENT_TYPE_WRITE && last >= 0 && w.pending[last] == change{path, name, t.typ}:
			// many writes of one file count as one; the kernel joins such events too
		case len(w.pending) < maxPending:
			w.pending = append(w.pending, change{path, name, t.typ})
		default:
			w.lost = true
		}
	}
	w.mu.Unlock()
	w.signal()
}

// markLost notes that events were lost.
func (w *watcher) markLost() {
	w.mu.Lock()
	w.lost = true
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run calls emit with each event until the context ends, the watcher is closed, events were
// lost or emit fails. It calls idle after each interval without an event.
func (w *watcher) run(ctx context.Context, interval time.Duration, emit func(*filesystempb.FilesystemEvent) error, idle func() error) error {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-w.changed:
			err = w.emitPending(emit)
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

func (w *watcher) emitPending(emit func(*filesystempb.FilesystemEvent) error) error {
	w.mu.Lock()
	pending, lost := w.pending, w.lost
	w.pending, w.lost = nil, false
	w.mu.Unlock()
	for _, c := range pending {
		if err := emit(w.event(c)); err != nil {
			return err
		}
	}
	if lost {
		return errOverflow
	}
	return nil
}

func (w *watcher) event(c change) *filesystempb.FilesystemEvent {
	event := &filesystempb.FilesystemEvent{Name: valid(c.name), Type: c.typ}
	if w.includeEntry && c.typ != filesystempb.EventType_EVENT_TYPE_REMOVE && c.typ != filesystempb.EventType_EVENT_TYPE_RENAME {
		_ = w.user.Act(func() (err error) {
			event.Entry, err = Describe(c.path, w.namer) // nil when it is gone again, or hidden from the user
			return err
		})
	}
	return event
}
