package filesystem

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

var eventTypes = []struct {
	mask uint32
	typ  filesystempb.EventType
}{
	{unix.IN_CREATE | unix.IN_MOVED_TO, filesystempb.EventType_EVENT_TYPE_CREATE},
	{unix.IN_MODIFY, filesystempb.EventType_EVENT_TYPE_WRITE},
	{unix.IN_DELETE | unix.IN_DELETE_SELF, filesystempb.EventType_EVENT_TYPE_REMOVE},
	{unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, filesystempb.EventType_EVENT_TYPE_RENAME},
	{unix.IN_ATTRIB, filesystempb.EventType_EVENT_TYPE_CHMOD},
}

// handle handles one event of the kernel.
func (n *notifier) handle(wd int32, mask, cookie uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		if err := n.user.Act(n.startAgain); err != nil {
			n.reportLossToAll()
		}
		return
	}
	n.mu.Lock()
	dir, known := n.tree.paths[wd]
	switch {
	case !known: // the directory is not watched any more
	case mask&unix.IN_IGNORED != 0:
		n.tree.drop(dir)
	case name == "":
		n.handleSelf(dir, mask)
	case unfinished(name), n.movedAway(dir):
	case mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		n.mu.Unlock()
		path := filepath.Join(dir, name)
		if err := n.user.Act(func() error { return n.arrive(path, dir, mask, cookie) }); err != nil {
			n.reportLoss(path) // for example because of too many watches: events in the directory are missed
		}
		return
	default:
		path := filepath.Join(dir, name)
		n.notify(dir, path, mask, n.alreadyAnnounced(path, mask))
		if _, watched := n.tree.wds[path]; watched && mask&unix.IN_ISDIR != 0 && mask&unix.IN_MOVED_FROM != 0 {
			n.moving[cookie] = move{path, time.Now()}
		}
	}
	n.mu.Unlock()
}

// handleSelf sends an event of a watched directory itself to the watchers whose root it is;
// watchers of directories above it get the event of its parent. Call it with mu held.
func (n *notifier) handleSelf(dir string, mask uint32) {
	for w := range n.watchers {
		if w.root == dir {
			w.push(dir, ".", mask)
		}
	}
	if _, parent := n.tree.wds[filepath.Dir(dir)]; mask&unix.IN_MOVE_SELF != 0 && !parent {
		n.abandon(dir) // its new path is not known
	}
}

// notify sends an event of an entry to the watchers of its directory, except those in but.
// Call it with mu held.
func (n *notifier) notify(dir, path string, mask uint32, but map[*watcher]bool) {
	for w := range n.watchers {
		if w.covers(dir) && !but[w] {
			w.push(path, w.nameOf(path), mask)
		}
	}
}

// alreadyAnnounced returns the watchers to which a search has announced the entry of this
// event, because it found the entry before the event was read. Call it with mu held, once
// for each event.
func (n *notifier) alreadyAnnounced(path string, mask uint32) map[*watcher]bool {
	announced := n.announced[path]
	delete(n.announced, path) // a later entry of this path is another one, and must be announced
	if mask&unix.IN_CREATE == 0 {
		return nil
	}
	return announced
}

// arrive handles a directory that was made in, or moved into, a watched directory. Call it
// with the user's rights.
func (n *notifier) arrive(path, dir string, mask, cookie uint32) error {
	n.mu.Lock()
	half, moved := n.moving[cookie]
	from := half.path
	delete(n.moving, cookie)
	announced := n.alreadyAnnounced(path, mask)
	knew := map[*watcher]bool{} // watchers that know its contents, by another name or from a search
	maps.Copy(knew, announced)
	if moved {
		n.tree.rename(from, path)
		for w := range n.watchers {
			knew[w] = w.covers(from)
			if within(w.root, from) {
				w.root, knew[w] = path+w.root[len(from):], true
			}
		}
	}
	wanted := n.wanted(path)
	var err error
	if wanted {
		err = n.watch(path) // before its event is sent: a client that gets it may write there at once
	}
	n.notify(dir, path, mask, announced)
	n.prune(path) // it may have moved to where no watcher covers it
	n.mu.Unlock()
	if !wanted {
		return nil
	}
	// Announce the entries in it to the watchers that did not know them by another name.
	return errors.Join(ignoreHidden(err), n.search(path, func(dir, path string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for w := range n.watchers {
			if w.covers(dir) && !knew[w] {
				w.push(path, w.nameOf(path), unix.IN_CREATE)
				if n.announced[path] == nil {
					n.announced[path] = map[*watcher]bool{}
				}
				n.announced[path][w] = true
			}
		}
	}))
}

// reportLoss tells the watchers of a directory that events are missing.
func (n *notifier) reportLoss(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		if w.covers(dir) {
			w.markLost()
		}
	}
}

// movedAway reports whether a directory is in one that has been moved and whose new path is
// not known yet, so that its events have no path. Call it with mu held.
func (n *notifier) movedAway(dir string) bool {
	for _, m := range n.moving {
		if within(dir, m.path) {
			return true
		}
	}
	return false
}

// expireMoves forgets the directories that moved to where nothing is watched: the second half
// of their move has not come within moveWait. It returns when to call it again; zero if there
// is no open move.
func (n *notifier) expireMoves(now time.Time) (again time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for cookie, m := range n.moving {
		at := m.at.Add(moveWait)
		switch {
		case !now.Before(at):
			n.abandon(m.path)
			delete(n.moving, cookie)
		case again.IsZero() || at.Before(again):
			again = at
		}
	}
	return again
}

// abandon forgets a directory and all directories below it. Call it with mu held.
func (n *notifier) abandon(path string) {
	for _, p := range n.tree.below(path) {
		n.forget(p)
	}
}

// search watches the wanted directories below a directory, and calls found, which may be
// nil, for each entry. It leaves out entries that are removed meanwhile.
func (n *notifier) search(dir string, found func(dir, path string)) error {
	children, err := os.ReadDir(dir)
	if err != nil {
		return ignoreHidden(err)
	}
	for _, child := range children {
		path := filepath.Join(dir, child.Name())
		if unfinished(path) {
			continue
		}
		recursive := false
		if child.IsDir() {
			n.mu.Lock()
			if recursive = n.wanted(path); recursive {
				err = n.watch(path)
			}
			n.mu.Unlock()
		}
		if err = ignoreHidden(err); err != nil {
			return err
		}
		if found != nil {
			found(dir, path)
		}
		if recursive {
			if err := n.search(path, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// ignoreHidden returns nil for the errors of files that are gone or that the user may not
// see.
func ignoreHidden(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// startAgain watches everything anew after the kernel has lost events, which may have been
// moves, and tells all watchers that events are missing. Call it with the user's rights.
func (n *notifier) startAgain() error {
	n.mu.Lock()
	for path := range n.tree.wds {
		n.forget(path)
	}
	clear(n.moving)
	roots := map[string]bool{}
	for w := range n.watchers {
		roots[w.root] = roots[w.root] || w.recursive
	}
	for root := range roots {
		_ = n.watch(root) // fails if the root is gone, which has no more events
	}
	n.mu.Unlock()
	for root, recursive := range roots {
		if recursive {
			_ = n.search(root, nil)
		}
	}
	n.reportLossToAll()
	return nil
}

// reportLossToAll tells all watchers that events are missing.
func (n *notifier) reportLossToAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		w.markLost()
	}
}
