package filesystem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// watchMask has the events of a directory and of its entries.
	watchMask = unix.IN_CREATE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_MOVE_SELF | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	// moveWait is how long the second event of a move may take. The kernel queues both
	// events before the move returns.
	moveWait = 50 * time.Millisecond
)

// notifier is the inotify instance that all watchers of a user share. They share it because
// the kernel allows a user 128 instances by default, and to the kernel the sandboxds of all
// sandboxes on a node and the kubelet are one user. Directories are read and watched with
// the rights of the watchers' user.
//
// A directory is known by the number of its watch, which stays when the directory moves; its
// recorded path is rewritten then. A directory that arrives below a recursive watcher is
// watched before its event is sent, and then searched. A directory that moves away is
// forgotten with all directories below it. When the kernel has lost events, everything is
// watched anew, and every watcher is told that events are missing.
//
// The reading goroutine and the callers of add change the records, both under mu. They read
// directories without mu: a directory that moves meanwhile causes an event, and is searched
// again.
type notifier struct {
	fd   int      // for the calls that add and remove watches; valid while not closed
	file *os.File // the same, for reading and waiting
	read chan struct{}
	user users.User

	mu       sync.Mutex // guards all below, and the roots of watchers
	tree     tree
	watchers map[*watcher]struct{}
	moving   map[uint32]move // of watched directories, by cookie
	// announced has, by path, the watchers to which a search has announced an entry while
	// events of the kernel were unread. The event of the entry's creation may be among the
	// unread ones, and is not sent to these watchers a second time.
	announced map[string]map[*watcher]bool
	closed    bool
}

// move is a rename whose first event has come: the old path, and the time of the event.
type move struct {
	path string
	at   time.Time
}

func newNotifier(u users.User) (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening inotify (raise fs.inotify.max_user_instances on the node if there are too many): %w", err)
	}
	n := &notifier{
		fd: fd, file: os.NewFile(uintptr(fd), "inotify"), read: make(chan struct{}), user: u,
		tree: newTree(), watchers: map[*watcher]struct{}{}, moving: map[uint32]move{},
		announced: map[string]map[*watcher]bool{},
	}
	go n.readAll()
	return n, nil
}

// close stops reading events. Watchers get no more. Call it once.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	_ = n.file.Close()
	n.mu.Unlock()
	<-n.read
}

// add begins to send events to a watcher.
func (n *notifier) add(w *watcher) error {
	err := n.user.Act(func() error {
		n.mu.Lock()
		n.watchers[w] = struct{}{}
		err := n.watch(w.root)
		root, recursive := w.root, w.recursive
		n.mu.Unlock()
		if err == nil && recursive {
			err = n.search(root, nil)
		}
		return err
	})
	if err != nil {
		n.remove(w)
	}
	return err
}

// remove stops sending events to a watcher; it may be called again.
func (n *notifier) remove(w *watcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watchers, w)
	n.prune(w.root)
}

// watch begins to watch one directory. Call it with the user's rights, and with mu held.
func (n *notifier) watch(path string) error {
	if n.closed {
		return os.ErrClosed
	}
	wd, err := unix.InotifyAddWatch(n.fd, path, watchMask)
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	if old, known := n.tree.paths[int32(wd)]; known && old != path && sameFile(old, path) {
		return nil // the same directory by another mount: it keeps its first name
	}
	n.tree.record(int32(wd), path)
	return nil
}

func sameFile(a, b string) bool {
	first, err := os.Lstat(a)
	second, err2 := os.Lstat(b)
	return err == nil && err2 == nil && os.SameFile(first, second)
}

// prune stops watching the directories at and below a path that no watcher covers. Call it
// with mu held.
func (n *notifier) prune(path string) {
	for _, p := range n.tree.below(path) {
		if !n.wanted(p) {
			n.forget(p)
		}
	}
}

func (n *notifier) wanted(dir string) bool {
	for w := range n.watchers {
		if w.covers(dir) {
			return true
		}
	}
	return false
}

// forget stops watching one directory. Call with mu held.
func (n *notifier) forget(path string) {
	if wd, known := n.tree.drop(path); known && !n.closed {
		_, _ = unix.InotifyRmWatch(n.fd, uint32(wd)) // fails if the directory is gone, and the watch with it
	}
}

// readAll reads and handles the kernel's events until the notifier is closed.
func (n *notifier) readAll() {
	defer close(n.read)
	buf := make([]byte, 64<<10)
	for {
		count, err := n.file.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		for rest := buf[:max(count, 0)]; len(rest) >= unix.SizeofInotifyEvent; {
			length := binary.NativeEndian.Uint32(rest[12:])
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+int(length)]), "\x00")
			n.handle(int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:]), binary.NativeEndian.Uint32(rest[8:]), name)
			rest = rest[unix.SizeofInotifyEvent+int(length):]
		}
		n.mu.Lock()
		if !n.closed {
			if unread, err := unix.IoctlGetInt(n.fd, unix.TIOCINQ); err == nil && unread == 0 {
				clear(n.announced)
			}
		}
		n.mu.Unlock()
		_ = n.file.SetReadDeadline(n.expireMoves(time.Now()))
	}
}
