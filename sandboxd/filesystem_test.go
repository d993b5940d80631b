package sandboxd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

func (a *agent) stat(path string) (*filesystempb.EntryInfo, error) {
	res, err := a.filesystem.Stat(a.t.Context(), connect.NewRequest(&filesystempb.StatRequest{Path: path}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetEntry(), nil
}

func TestStat(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	path := dir + "/f"
	if err := os.WriteFile(path, []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	_ = os.Symlink(path, dir+"/link")
	_ = os.Symlink("gone", dir+"/broken")
	e, err := a.stat(path)
	if err != nil || e.GetName() != "f" || e.GetPath() != path || e.GetSize() != 5 || e.GetMode() != 0o640 || e.GetPermissions() != "-rw-r-----" ||
		e.GetType() != filesystempb.FileType_FILE_TYPE_FILE || e.SymlinkTarget != nil || e.GetIsSymlink() || e.GetOwner() == "" || e.GetModifiedTime().AsTime().IsZero() {
		t.Errorf("file: %v %v", e, err)
	}
	// A link is described by itself; type and mode are those of what it leads to.
	long := time.Now().Add(-time.Hour)
	must(t, unix.Lutimes(dir+"/link", []unix.Timeval{unix.NsecToTimeval(long.UnixNano()), unix.NsecToTimeval(long.UnixNano())}))
	if e, err := a.stat(dir + "/link"); err != nil || e.GetType() != filesystempb.FileType_FILE_TYPE_FILE || e.GetMode() != 0o640 || e.GetSymlinkTarget() != path || !e.GetIsSymlink() ||
		e.GetName() != "link" || e.GetSize() != int64(len(path)) || e.GetPermissions() != "Lrwxrwxrwx" || e.GetModifiedTime().AsTime().Unix() != long.Unix() {
		t.Errorf("link: %v %v", e, err)
	}
	if os.Geteuid() == 0 {
		must(t, os.Lchown(dir+"/link", 4321, 4321))
		if e, err := a.stat(dir + "/link"); err != nil || e.GetOwner() != "4321" || e.GetGroup() != "4321" {
			t.Errorf("the owner of a link: %v %v", e, err)
		}
	}
	_ = os.Symlink("circle", dir+"/circle")
	for name, target := range map[string]string{"broken": "gone", "circle": "circle"} {
		if e, err := a.stat(dir + "/" + name); err != nil || e.GetType() != filesystempb.FileType_FILE_TYPE_UNSPECIFIED || e.GetMode() != 0 || e.GetSymlinkTarget() != target || !e.GetIsSymlink() || e.GetPermissions() != "Lrwxrwxrwx" {
			t.Errorf("%s link: %v %v", name, e, err)
		}
	}
	if e, err := a.stat(dir); err != nil || e.GetType() != filesystempb.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("directory: %v %v", e, err)
	}
	_, err = a.stat(dir + "/none")
	wantCode(t, "missing", err, connect.CodeNotFound)
	_, err = a.stat(path + "/below")
	wantCode(t, "below a file", err, connect.CodeInvalidArgument)
	_, err = a.stat("a\x00b")
	wantCode(t, "a zero byte", err, connect.CodeInvalidArgument)
	_, err = a.stat("~bob/x")
	wantCode(t, "another user's home", err, connect.CodeInvalidArgument)
}

func TestMetadata(t *testing.T) {
	a := newAgent(t, Options{})
	path := t.TempDir() + "/f"
	must(t, os.WriteFile(path, nil, 0o600))
	if unix.Setxattr(path, "user.probe", []byte("1"), 0) != nil {
		t.Skip("the file system keeps no attributes")
	}
	a.want(200, `"metadata":{"author":"me, (you)~"}`, "POST", filesURL(path), "x", "Content-Type", octets, "X-Metadata-Author", "me, (you)~")
	if e, err := a.stat(path); err != nil || len(e.GetMetadata()) != 1 || e.GetMetadata()["author"] != "me, (you)~" {
		t.Errorf("%v %v", e, err)
	}
	a.want(200, `"metadata":{"a":"1","b":"2"}`, "POST", filesURL(path), "x", "Content-Type", octets, "X-Metadata-A", "1", "X-Metadata-B", "2")
	if e, err := a.stat(path); err != nil || len(e.GetMetadata()) != 2 {
		t.Errorf("the old keys are still there: %v %v", e, err)
	}
	a.want(200, "", "POST", filesURL(path), "x", "Content-Type", octets)
	if e, err := a.stat(path); err != nil || len(e.GetMetadata()) != 0 {
		t.Errorf("a new file has the old one's metadata: %v %v", e, err)
	}
}

// Metadata that cannot be stored is refused before anything is written: E2B's bounds.
func TestMetadataIsJudgedFirst(t *testing.T) {
	a := newAgent(t, Options{})
	path := t.TempDir() + "/d/f"
	for what, headers := range map[string][]string{
		"no ASCII":              {"X-Metadata-Author", "me ✓"},
		"a tab":                 {"X-Metadata-Author", "a\tb"},
		"a long key":            {"X-Metadata-" + strings.Repeat("k", 247), "v"},
		"4,097 bytes":           {"X-Metadata-K", strings.Repeat("v", 4096-len("user.e2b.k")+1)},
		"4,097 bytes in shares": {"X-Metadata-A", strings.Repeat("v", 2048), "X-Metadata-B", strings.Repeat("v", 2048-2*len("user.e2b.a")+1)},
	} {
		a.want(400, "metadata", "POST", filesURL(path), "x", append(headers, "Content-Type", octets)...)
		if _, err := os.Stat(filepath.Dir(path)); err == nil {
			t.Errorf("%s: something was written", what)
		}
	}
	a.want(200, "", "POST", filesURL(path), "x", "Content-Type", octets, "X-Metadata-"+strings.Repeat("k", 246), "v")
	// At the bound the file system may have no place for it, which is no lack of space.
	res, body := a.do("POST", filesURL(path+"2"), "x", "Content-Type", octets, "X-Metadata-K", strings.Repeat("v", 4096-len("user.e2b.k")))
	if _, err := os.Stat(path + "2"); res.StatusCode != 200 && res.StatusCode != 400 || (err == nil) != (res.StatusCode == 200) {
		t.Errorf("4,096 bytes: %d %s, %v", res.StatusCode, body, err)
	}
}

func TestMakeMoveRemove(t *testing.T) {
	a, ctx := newAgent(t, Options{}), t.Context()
	dir := t.TempDir()
	mk := func(path string) error {
		_, err := a.filesystem.MakeDir(ctx, connect.NewRequest(&filesystempb.MakeDirRequest{Path: path}))
		return err
	}
	mv := func(from, to string) error {
		_, err := a.filesystem.Move(ctx, connect.NewRequest(&filesystempb.MoveRequest{Source: from, Destination: to}))
		return err
	}
	rm := func(path string) error {
		_, err := a.filesystem.Remove(ctx, connect.NewRequest(&filesystempb.RemoveRequest{Path: path}))
		return err
	}
	if err := mk(dir + "/a/b"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "making it again", mk(dir+"/a/b"), connect.CodeAlreadyExists)
	if err := os.WriteFile(dir+"/a/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "making what is a file", mk(dir+"/a/f"), connect.CodeInvalidArgument)
	wantCode(t, "making below a file", mk(dir+"/a/f/g"), connect.CodeInvalidArgument)
	if err := mv(dir+"/a/f", dir+"/new/place"); err != nil || content(t, dir+"/new/place") != "x" {
		t.Errorf("move: %v", err)
	}
	wantCode(t, "moving nothing", mv(dir+"/a/f", dir+"/other/place"), connect.CodeNotFound)
	if _, err := os.Stat(dir + "/other"); err == nil {
		t.Error("a move that failed made directories")
	}
	for range 2 { // what is not there is removed
		if err := rm(dir + "/new"); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	wantCode(t, "removing the root", rm("/"), connect.CodeInvalidArgument)
}

func TestListDir(t *testing.T) {
	a, ctx := newAgent(t, Options{}), t.Context()
	dir := t.TempDir()
	_ = os.MkdirAll(dir+"/a/b/c", 0o755)
	_ = os.WriteFile(dir+"/a/\xff\n", nil, 0o600)
	_ = os.Symlink(dir, dir+"/loop")
	names := func(path string, depth uint32) string {
		res, err := a.filesystem.ListDir(ctx, connect.NewRequest(&filesystempb.ListDirRequest{Path: path, Depth: depth}))
		if err != nil {
			return err.Error()
		}
		var all []string
		for _, e := range res.Msg.GetEntries() {
			all = append(all, strings.TrimPrefix(e.GetPath(), dir+"/"))
		}
		return strings.Join(all, ",")
	}
	for depth, want := range []string{"a,loop", "a,loop", "a,a/b,a/\uFFFD\n,loop", "a,a/b,a/b/c,a/\uFFFD\n,loop", "a,a/b,a/b/c,a/\uFFFD\n,loop"} {
		if got := names(dir, uint32(depth)); got != want {
			t.Errorf("depth %d: %q, want %q", depth, got, want)
		}
	}
	for i := range 10_000 {
		if err := os.WriteFile(fmt.Sprintf("%s/a/b/%05d", dir, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(names(dir+"/a/b", 1), ","); got != 10_000 {
		t.Errorf("%d entries, want 10001", got+1)
	}
	if got := names(dir+"/none", 1); !strings.Contains(got, "not_found") {
		t.Error(got)
	}
}

func TestWatchDir(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := a.filesystem.WatchDir(ctx, connect.NewRequest(&filesystempb.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil || !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatal(err, stream.Err())
	}
	defer func() { cancel(); _ = stream.Close() }()
	next := func(typ filesystempb.EventType, name string) {
		t.Helper()
		for stream.Receive() {
			e := stream.Msg().GetFilesystem()
			if e.GetType() == typ && e.GetName() == name {
				if typ == filesystempb.EventType_EVENT_TYPE_WRITE && e.GetEntry().GetPath() != filepath.Join(dir, name) {
					t.Errorf("the entry of %s is %v", name, e.GetEntry())
				}
				return
			}
		}
		t.Fatalf("no %s of %s: %v", typ, name, stream.Err())
	}
	_ = os.MkdirAll(dir+"/n/m", 0o755)
	next(filesystempb.EventType_EVENT_TYPE_CREATE, "n/m")
	a.want(200, "", "POST", filesURL(dir+"/n/m/f"), "x", "Content-Type", octets)
	next(filesystempb.EventType_EVENT_TYPE_WRITE, "n/m/f")
	_ = os.Rename(dir+"/n/m/f", dir+"/n/m/g")
	next(filesystempb.EventType_EVENT_TYPE_RENAME, "n/m/f")
	next(filesystempb.EventType_EVENT_TYPE_CREATE, "n/m/g")
	_ = os.Chmod(dir+"/n/m/g", 0o600)
	next(filesystempb.EventType_EVENT_TYPE_CHMOD, "n/m/g")
	_ = os.Remove(dir + "/n/m/g")
	next(filesystempb.EventType_EVENT_TYPE_REMOVE, "n/m/g")
}

func TestCollectingWatcher(t *testing.T) {
	a, ctx := newAgent(t, Options{}), t.Context()
	dir := t.TempDir()
	created, err := a.filesystem.CreateWatcher(ctx, connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: dir}))
	if err != nil {
		t.Fatal(err)
	}
	id := created.Msg.GetWatcherId()
	_ = os.Mkdir(dir+"/sub", 0o755)
	_ = os.WriteFile(dir+"/sub/unseen", nil, 0o600)
	a.want(200, "", "POST", filesURL(dir+"/sub/unseen"), "x", "Content-Type", octets)
	a.want(200, "", "POST", filesURL(dir+"/last"), "x", "Content-Type", octets)
	seen := map[string]bool{}
	eventually(t, "the events", func() bool {
		res, err := a.filesystem.GetWatcherEvents(ctx, connect.NewRequest(&filesystempb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Msg.GetEvents() {
			seen[e.GetType().String()+" "+e.GetName()] = true
		}
		return seen["EVENT_TYPE_CREATE sub"] && seen["EVENT_TYPE_WRITE last"]
	})
	for event := range seen {
		if strings.Contains(event, "unseen") {
			t.Errorf("not recursive, and yet: %s", event)
		}
	}
	if _, err := a.filesystem.RemoveWatcher(ctx, connect.NewRequest(&filesystempb.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
	_, err = a.filesystem.GetWatcherEvents(ctx, connect.NewRequest(&filesystempb.GetWatcherEventsRequest{WatcherId: id}))
	wantCode(t, "a removed watcher", err, connect.CodeNotFound)
	_, err = a.filesystem.CreateWatcher(ctx, connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: dir + "/none"}))
	wantCode(t, "watching nothing", err, connect.CodeNotFound)
	_, err = a.filesystem.CreateWatcher(ctx, connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: dir + "/last"}))
	wantCode(t, "watching a file", err, connect.CodeInvalidArgument)
}
