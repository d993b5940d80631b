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

// handle takes one event of the kernel.
func (n *notifier) handle(wd int32, mask, cookie uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		if err := n.user.Act(n.startAgain); err != nil {
			n.loseAll()
		}
		return
	}
	n.mu.Lock()
	dir, known := n.tree.paths[wd]
	switch {
	case !known: // of a directory that is not watched any more
	case mask&unix.IN_IGNORED != 0:
		n.tree.drop(dir)
	case name == "":
		n.ofItself(dir, mask)
	case unfinished(name), n.leaves(dir):
	case mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		n.mu.Unlock()
		path := filepath.Join(dir, name)
		if err := n.user.Act(func() error { return n.arrive(path, dir, mask, cookie) }); err != nil {
			n.lose(path) // there are too many watches, say: what happens in it is not heard
		}
		return
	default:
		path := filepath.Join(dir, name)
		n.tell(dir, path, mask, n.alreadyAnnounced(path, mask))
		if _, watched := n.tree.wds[path]; watched && mask&unix.IN_ISDIR != 0 && mask&unix.IN_MOVED_FROM != 0 {
			n.moving[cookie] = move{path, time.Now()}
		}
	}
	n.mu.Unlock()
}

// ofItself tells the watchers of a directory what happened to it; those above it hear
// that of its parent. Call with mu held.
func (n *notifier) ofItself(dir string, mask uint32) {
	for w := range n.watchers {
		if w.root == dir {
			w.push(dir, ".", mask)
		}
	}
	if _, parent := n.tree.wds[filepath.Dir(dir)]; mask&unix.IN_MOVE_SELF != 0 && !parent {
		n.abandon(dir) // to where is not known
	}
}

// tell tells the watchers of a directory, but for some, what happened to an entry. Call
// with mu held.
func (n *notifier) tell(dir, path string, mask uint32, but map[*watcher]bool) {
	for w := range n.watchers {
		if w.covers(dir) && !but[w] {
			w.push(path, w.nameOf(path), mask)
		}
	}
}

// alreadyAnnounced returns the watchers to which a search has announced the entry of this
// event: it found the entry before the event was read. Call with mu held, once an event.
func (n *notifier) alreadyAnnounced(path string, mask uint32) map[*watcher]bool {
	announced := n.announced[path]
	delete(n.announced, path) // an entry that is made after this one was removed is another
	if mask&unix.IN_CREATE == 0 {
		return nil
	}
	return announced
}

// arrive takes a directory that was made in, or moved to, another. Call with the user's
// rights.
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
	n.tell(dir, path, mask, announced)
	n.prune(path) // it may have moved out of what any watcher covers
	n.mu.Unlock()
	if !wanted {
		return nil
	}
	// What was in it already is told to the watchers that did not know it by another name.
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

// lose tells the watchers of a directory that events are missing.
func (n *notifier) lose(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		if w.covers(dir) {
			w.lose()
		}
	}
}

// leaves reports whether a directory is in one that has left, to where is not known
// yet: what happens in it has no name. Call with mu held.
func (n *notifier) leaves(dir string) bool {
	for _, m := range n.moving {
		if within(dir, m.path) {
			return true
		}
	}
	return false
}

// leave forgets the directories that moved to where no watch is, and returns when to
// do so again; zero for never.
func (n *notifier) leave(now time.Time) (again time.Time) {
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

// abandon forgets a directory with all below it. Call with mu held.
func (n *notifier) abandon(path string) {
	for _, p := range n.tree.below(path) {
		n.forget(p)
	}
}

// search watches what is below a directory and tells found, which may be nil, of all
// that is there. What goes away meanwhile is left out.
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

// ignoreHidden leaves out what is gone and what the user may not see.
func ignoreHidden(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// startAgain watches everything anew after events were lost, among which may have been
// moves, and tells all watchers. Call with the user's rights.
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
		_ = n.watch(root) // one that is gone has nothing more to tell
	}
	n.mu.Unlock()
	for root, recursive := range roots {
		if recursive {
			_ = n.search(root, nil)
		}
	}
	n.loseAll()
	return nil
}

// loseAll tells all watchers that events are missing.
func (n *notifier) loseAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		w.lose()
	}
}
