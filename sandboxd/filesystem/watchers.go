package filesystem

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// maxWatchers bounds the watchers of a sandbox.
	maxWatchers = 1000
	// maxWatchingUsers bounds the users that have watchers at the same time: each user takes
	// one of the node's inotify instances.
	maxWatchingUsers = 8
)

// watchers are the watchers of one service.
type watchers struct {
	mu        sync.Mutex             // guards all below
	notifiers map[string]*userEvents // by user; only of users that have watchers
	live      map[*watcher]*userEvents
	named     map[string]*collector // those of CreateWatcher
	closed    bool
	loops     sync.WaitGroup

	expireAfter time.Duration // constant
}

// userEvents is the notifier of one user's watchers: it watches only directories that the
// user may read.
type userEvents struct {
	*notifier
	key      string
	watchers int
}

// add begins to send events to a watcher.
func (ws *watchers) add(w *watcher) error {
	ws.mu.Lock()
	n, err := ws.notifierFor(w.user)
	if err != nil {
		ws.mu.Unlock()
		return err
	}
	ws.live[w] = n
	n.watchers++
	ws.mu.Unlock()
	err = n.add(w) // without mu, since it may read many directories
	if err != nil {
		ws.remove(w)
	}
	return err
}

// notifierFor returns the notifier of a user, and opens it for the user's first watcher. It
// fails if there are too many watchers or users. Call it with mu held.
func (ws *watchers) notifierFor(u users.User) (*userEvents, error) {
	key := fmt.Sprint(u.UID, u.GID, u.Groups)
	if u.AsRoot {
		key = "root"
	}
	switch n := ws.notifiers[key]; {
	case ws.closed:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("sandboxd is shutting down"))
	case len(ws.live) >= maxWatchers:
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d watchers already", maxWatchers))
	case n != nil:
		return n, nil
	case len(ws.notifiers) >= maxWatchingUsers:
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d users watch already", maxWatchingUsers))
	}
	opened, err := newNotifier(u)
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	n := &userEvents{notifier: opened, key: key}
	ws.notifiers[key] = n
	return n, nil
}

// remove ends a watcher, and the notifier with the last one of its user; it may be
// called again.
func (ws *watchers) remove(w *watcher) {
	ws.mu.Lock()
	n := ws.live[w]
	if n == nil {
		ws.mu.Unlock()
		return
	}
	delete(ws.live, w)
	n.watchers--
	last := n.watchers == 0
	if last {
		delete(ws.notifiers, n.key)
	}
	ws.mu.Unlock()
	n.remove(w)
	close(w.closed)
	if last {
		n.close()
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
	ws.mu.Unlock()
	for _, w := range all {
		ws.remove(w)
	}
	ws.loops.Wait()
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
