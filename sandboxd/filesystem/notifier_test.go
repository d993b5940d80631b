package filesystem

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anyone is a caller that may do everything.
type anyone struct{}

func (anyone) Names(uint32, uint32) (string, string) { return "", "" }
func (anyone) User(http.Header) (users.User, error)  { return users.Database{}.Own(), nil }
func (anyone) Workdir() string                       { return "" }

// next returns the names of the events up to one.
func next(t *testing.T, w *watcher, last string) (names []string, lost bool) {
	t.Helper()
	for !slices.Contains(names, last) {
		select {
		case <-w.changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("no %s, only %q", last, names)
		}
		w.mu.Lock()
		for _, c := range w.pending {
			names = append(names, c.name)
		}
		lost = lost || w.lost
		w.pending, w.lost = nil, false
		w.mu.Unlock()
	}
	return names, lost
}

// After the kernel lost events, among them a move, watchers are told so and hear of
// what follows by the right names.
func TestLostEvents(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	n, err := newNotifier(users.Database{}.Own())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	w, err := newWatcher(users.Database{}.Own(), dir, &filesystempb.WatchDirRequest{Path: dir, Recursive: true}, anyone{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.add(w); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	next(t, w, "b")
	n.mu.Lock()
	n.tree.rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")) // as if the move had not been heard of
	n.mu.Unlock()
	n.startAgain()
	if err := os.WriteFile(filepath.Join(dir, "b/sub/f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if names, lost := next(t, w, "b/sub/f"); !lost {
		t.Errorf("nobody says that events are missing: %q", names)
	}
	n.remove(w)
	if left := len(n.tree.paths); left != 0 {
		t.Errorf("%d directories are still watched", left)
	}
}

// What is watched anew after lost events is what the user may read.
func TestLostEventsWithTheUsersRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("acting for another user needs root")
	}
	dir, u := t.TempDir(), users.User{Name: "u", UID: 1234, GID: 1234}
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Mkdir(dir+"/private", 0o700), os.Mkdir(dir+"/open", 0o755)); err != nil {
		t.Fatal(err)
	}
	n, err := newNotifier(u)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	w, err := newWatcher(u, dir, &filesystempb.WatchDirRequest{Path: dir, Recursive: true}, anyone{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.add(w); err != nil {
		t.Fatal(err)
	}
	n.handle(-1, unix.IN_Q_OVERFLOW, 0, "")
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, private := n.tree.wds[dir+"/private"]; private || len(n.tree.wds) != 2 {
		t.Errorf("watched: %v", n.tree.wds)
	}
}

// A collecting watcher ends when no client asks for its events, and not before.
func TestCollectingWatcherExpires(t *testing.T) {
	s := New(anyone{})
	defer s.Close()
	s.watchers.expireAfter = time.Second
	dir := t.TempDir()
	create := func() (string, *collector) {
		made, err := s.CreateWatcher(t.Context(), connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: dir}))
		if err != nil {
			t.Fatal(err)
		}
		s.watchers.mu.Lock()
		defer s.watchers.mu.Unlock()
		c := s.watchers.named[made.Msg.GetWatcherId()]
		c.expiry.Reset(time.Hour) // before it is over, on a busy machine
		return made.Msg.GetWatcherId(), c
	}
	kept, other := create()
	left, c := create()
	c.expiry.Reset(0)
	<-c.watcher.closed
	ask := func(id string) error {
		_, err := s.GetWatcherEvents(context.Background(), connect.NewRequest(&filesystempb.GetWatcherEventsRequest{WatcherId: id}))
		return err
	}
	if err := ask(left); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the expired one: %v", err)
	}
	if err := ask(kept); err != nil {
		t.Errorf("the other: %v", err)
	}
	<-other.watcher.closed // asking began the time anew, and no client asks again
}

func TestTree(t *testing.T) {
	tree := newTree()
	for wd, path := range map[int32]string{1: "/r", 2: "/r/a", 3: "/r/a/b", 4: "/r/ab", 5: "/r/c"} {
		tree.record(wd, path)
	}
	tree.rename("/r/a", "/r/c") // over a directory that is gone then
	if tree.paths[2] != "/r/c" || tree.paths[3] != "/r/c/b" || tree.paths[4] != "/r/ab" || tree.wds["/r/c"] != 2 {
		t.Errorf("%v", tree.paths)
	}
	if _, known := tree.paths[5]; known {
		t.Error("two directories have one path")
	}
	tree.record(2, "/r/d") // its watch has a new path
	if tree.paths[3] != "/r/d/b" || len(tree.wds) != len(tree.paths) {
		t.Errorf("%v %v", tree.paths, tree.wds)
	}
	if got := len(tree.below("/")); got != 4 {
		t.Errorf("%d below /", got)
	}
	if wd, known := tree.drop("/r/d"); wd != 2 || !known {
		t.Errorf("dropped %d, %v", wd, known)
	}
}
