package sandboxd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// watched is a watcher of CreateWatcher.
type watched struct {
	a    *agent
	id   string
	seen []string // as "CREATE name"
}

func (a *agent) watch(dir string, recursive bool) *watched {
	a.t.Helper()
	made, err := a.filesystem.CreateWatcher(a.t.Context(), connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: dir, Recursive: recursive}))
	if err != nil {
		a.t.Fatal(err)
	}
	return &watched{a: a, id: made.Msg.GetWatcherId()}
}

// take waits for an event and returns all up to it, without repeated writes.
func (w *watched) take(last string) []string {
	w.a.t.Helper()
	eventually(w.a.t, last, func() bool {
		res, err := w.a.filesystem.GetWatcherEvents(w.a.t.Context(), connect.NewRequest(&filesystempb.GetWatcherEventsRequest{WatcherId: w.id}))
		if err != nil {
			w.a.t.Fatal(err)
		}
		for _, e := range res.Msg.GetEvents() {
			w.seen = append(w.seen, strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")+" "+e.GetName())
		}
		return slices.Contains(w.seen, last)
	})
	at := slices.Index(w.seen, last) + 1
	events := w.seen[:at:at]
	w.seen = w.seen[at:]
	return slices.Compact(events)
}

func (w *watched) want(what string, events ...string) {
	w.a.t.Helper()
	if got := w.take(events[len(events)-1]); !slices.Equal(got, events) {
		w.a.t.Errorf("%s: %q, want %q", what, got, events)
	}
}

// must fails the test for the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Folders that are renamed below a recursive watch keep being watched, by their new
// name, and so does one that takes the old name.
func TestWatchFollowsRenames(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	touch := func(name string) error { return os.WriteFile(at(name), nil, 0o600) }
	a := newAgent(t, Options{})
	must(t, os.MkdirAll(at("a/sub"), 0o755))
	w := a.watch(dir, true)
	for range 3 {
		must(t, os.Rename(at("a"), at("b")), touch("b/sub/f"))
		w.want("a new name", "RENAME a", "CREATE b", "CREATE b/sub/f")
		must(t, os.MkdirAll(at("a/sub"), 0o755), touch("a/sub/f"))
		if got := w.take("CREATE a/sub/f"); !slices.Contains(got, "CREATE a/sub") {
			t.Errorf("the old name comes back: %q", got)
		}
		must(t, touch("b/sub/g"))
		w.want("the new name still", "CREATE b/sub/g")
		must(t, os.Rename(at("b/sub"), at("a/moved")), touch("a/moved/h"))
		w.want("into another folder", "RENAME b/sub", "CREATE a/moved", "CREATE a/moved/h")
		must(t, os.RemoveAll(at("b")), os.RemoveAll(at("a/moved")), os.Remove(at("a/sub/f")), touch("end"), os.Remove(at("end")))
		w.take("REMOVE end")
	}
}

// What leaves the watched folder is heard of no more, and what comes is told of with
// all that is in it.
func TestWatchOfWhatLeavesAndComes(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "x/y"), 0o755))
	a := newAgent(t, Options{})
	w, other := a.watch(dir, true), a.watch(outside, false)
	must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(outside, "x")), os.WriteFile(filepath.Join(outside, "x/y/f"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	w.want("it leaves", "RENAME x", "CREATE end")
	must(t, os.WriteFile(filepath.Join(outside, "end"), nil, 0o600))
	other.want("not below it", "CREATE x", "CREATE end")
	must(t, os.Rename(filepath.Join(outside, "x"), filepath.Join(dir, "z")))
	w.want("it comes", "CREATE z", "CREATE z/y", "CREATE z/y/f")
	must(t, os.WriteFile(filepath.Join(dir, "z/y/g"), nil, 0o600))
	w.want("it stays", "CREATE z/y/g")
}

// A watcher of a folder that is renamed by somebody who is watched too goes with it.
func TestWatchOfARenamedRoot(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/root/sub"), 0o755))
	a := newAgent(t, Options{})
	all, root := a.watch(dir, true), a.watch(filepath.Join(dir, "a/root"), true)
	must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")), os.WriteFile(filepath.Join(dir, "b/root/sub/f"), nil, 0o600))
	all.want("from above", "RENAME a", "CREATE b", "CREATE b/root/sub/f")
	root.want("the folder in it", "CREATE sub/f")
	must(t, os.Rename(filepath.Join(dir, "b/root"), filepath.Join(dir, "b/new")), os.WriteFile(filepath.Join(dir, "b/new/g"), nil, 0o600))
	root.want("itself", "RENAME .", "CREATE g")
}

// Many watchers are one inotify instance: all sandboxes of a node share a bound of 128.
func TestWatchersShareAnInstance(t *testing.T) {
	instances := func() (count int) {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, e := range entries {
			if link, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(link, "inotify") {
				count++
			}
		}
		return count
	}
	before := instances()
	dir := t.TempDir()
	a := newAgent(t, Options{})
	all := make([]*watched, 200)
	for i := range all {
		all[i] = a.watch(dir, i%2 == 0)
	}
	if got := instances() - before; got != 1 {
		t.Errorf("%d instances for %d watchers", got, len(all))
	}
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	for _, w := range all {
		w.take("CREATE f")
	}
	a.stop()
	if got := instances(); got != before {
		t.Errorf("%d instances are left", got-before)
	}
}
