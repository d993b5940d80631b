package filesystem

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// A search finds what was made in a new directory while the event of its making is
// unread: it is told of once. After it was removed, the next of that name is another.
func TestWhatASearchFoundIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	n, err := newNotifier(users.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())})
	if err != nil {
		t.Fatal(err)
	}
	n.close() // of the kernel nothing is heard; the test says what happened
	if n.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(n.fd)
	n.closed = false
	w := &watcher{root: dir, recursive: true, changed: make(chan struct{}, 1)}
	n.watchers[w] = struct{}{}
	if err := n.watch(dir); err != nil {
		t.Fatal(err)
	}
	heard := func() (names []string) {
		for _, c := range w.pending {
			names = append(names, c.typ.String()[len("EVENT_TYPE_"):]+" "+c.name)
		}
		return names
	}
	made, gone := uint32(unix.IN_CREATE|unix.IN_ISDIR), uint32(unix.IN_DELETE|unix.IN_ISDIR)
	n.handle(n.tree.wds[dir], made, 0, "a")
	a := n.tree.wds[filepath.Join(dir, "a")]
	n.handle(a, made, 0, "sub")
	if want := []string{"CREATE a", "CREATE a/sub"}; !slices.Equal(heard(), want) {
		t.Errorf("told %q, want %q", heard(), want)
	}
	n.handle(a, gone, 0, "sub")
	n.handle(a, made, 0, "sub")
	if want := []string{"CREATE a", "CREATE a/sub", "REMOVE a/sub", "CREATE a/sub"}; !slices.Equal(heard(), want) {
		t.Errorf("told %q, want %q", heard(), want)
	}
}
