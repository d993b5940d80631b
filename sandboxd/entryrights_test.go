package sandboxd

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// Entries: nothing of root's is listed, described, made, moved, removed or watched for a
// user who may not.
func TestEntriesWithTheUsersRights(t *testing.T) {
	w := newWorker(t)
	ctx, fs := t.Context(), w.filesystem
	refused := func(what string, err error) {
		t.Helper()
		wantCode(t, what, err, connect.CodePermissionDenied)
		w.unchanged(what)
	}
	_, err := w.stat(w.home + "/private/secret")
	refused("stat", err)
	entry, err := w.stat(w.home + "/secret")
	if err != nil || entry.GetType() != filesystempb.FileType_FILE_TYPE_UNSPECIFIED || entry.GetMode() != 0 || entry.GetSize() == int64(len(secretText)) {
		t.Errorf("a link to what the user may not see: %v %v", entry, err)
	}
	_, err = fs.ListDir(ctx, connect.NewRequest(&filesystempb.ListDirRequest{Path: w.home + "/private"}))
	refused("list", err)
	for _, path := range []string{"private/d", "etc/d", "etc/d/e"} {
		_, err = fs.MakeDir(ctx, connect.NewRequest(&filesystempb.MakeDirRequest{Path: w.home + "/" + path}))
		refused("make "+path, err)
	}
	must(t, os.WriteFile(w.home+"/mine", nil, 0o644))
	for _, paths := range [][2]string{{"etc/profile", "stolen"}, {"private/secret", "stolen"}, {"mine", "etc/profile"}, {"mine", "private/secret"}, {"mine", "etc/d/e"}} {
		_, err = fs.Move(ctx, connect.NewRequest(&filesystempb.MoveRequest{Source: w.home + "/" + paths[0], Destination: w.home + "/" + paths[1]}))
		refused("move "+paths[0], err)
	}
	for _, path := range []string{"etc/profile", "private/secret", "../etc"} {
		_, err = fs.Remove(ctx, connect.NewRequest(&filesystempb.RemoveRequest{Path: w.home + "/" + path}))
		refused("remove "+path, err)
	}
	_, err = fs.CreateWatcher(ctx, connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: w.home + "/private", Recursive: true}))
	refused("watch", err)
	_, err = fs.CreateWatcher(ctx, connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: w.home + "/secret"}))
	refused("watch of a file", err)
	// What is below is left out, and the rest goes on.
	res, err := fs.ListDir(ctx, connect.NewRequest(&filesystempb.ListDirRequest{Path: filepath.Dir(w.home), Depth: 3}))
	if err != nil || len(res.Msg.GetEntries()) < 5 {
		t.Fatalf("%v %v", res, err)
	}
	for _, e := range res.Msg.GetEntries() {
		if e.GetPath() == w.secret {
			t.Error("the listing holds what is in a directory that the user may not list")
		}
	}
	if _, err := fs.MakeDir(ctx, connect.NewRequest(&filesystempb.MakeDirRequest{Path: w.home + "/x/y"})); err != nil {
		t.Error(err)
	}
	if _, err := fs.Remove(ctx, connect.NewRequest(&filesystempb.RemoveRequest{Path: w.home + "/etc"})); err != nil {
		t.Error(err) // the link itself is the user's
	}
	w.unchanged("the user's own")
}

// A recursive watch tells a user nothing of directories that the user may not read: of
// those that were there, of those that come, and of what root writes there by sandboxd.
// A watch of root's, of the same directory, hears of all.
func TestWatchWithTheUsersRights(t *testing.T) {
	w := newWorker(t)
	top := filepath.Dir(w.home)
	mine := w.watch(top, true)
	req := connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: top, Recursive: true})
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("root:")))
	made, err := w.filesystem.CreateWatcher(t.Context(), req)
	must(t, err)
	roots := &watched{a: w.agent, id: made.Msg.GetWatcherId()}
	w.want(200, "", "POST", filesURL(w.private+"/written")+"&username=root", "x", "Content-Type", octets)
	must(t, os.Mkdir(top+"/staging", 0o700), os.Mkdir(top+"/staging/in", 0o700), os.WriteFile(top+"/staging/in/f", nil, 0o600),
		os.WriteFile(w.home+"/end", nil, 0o644))
	heard := roots.take("CREATE home/end")
	if all := strings.Join(heard, " "); !strings.Contains(all, "private/written") || !strings.Contains(all, "staging/in/f") {
		t.Errorf("root hears of %q alone", heard)
	}
	heard = mine.take("CREATE home/end")
	for _, event := range heard {
		if strings.Contains(event, "private/") || strings.Contains(event, "staging/") {
			t.Errorf("the user hears %q", event)
		}
	}
	if !strings.Contains(strings.Join(heard, " "), "CREATE staging") {
		t.Errorf("the user hears of %q alone", heard)
	}
}

// The entry in an event is described with the user's rights.
func TestEntriesOfEventsWithTheUsersRights(t *testing.T) {
	w := newWorker(t)
	made, err := w.filesystem.CreateWatcher(t.Context(), connect.NewRequest(&filesystempb.CreateWatcherRequest{Path: w.home, IncludeEntry: true}))
	must(t, err, os.Symlink(w.secret, w.home+"/link"))
	var events []*filesystempb.FilesystemEvent
	eventually(t, "the event", func() bool {
		res, err := w.filesystem.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystempb.GetWatcherEventsRequest{WatcherId: made.Msg.GetWatcherId()}))
		must(t, err)
		events = append(events, res.Msg.GetEvents()...)
		return len(events) > 0
	})
	if entry := events[0].GetEntry(); entry.GetType() != filesystempb.FileType_FILE_TYPE_UNSPECIFIED || entry.GetSymlinkTarget() != w.secret {
		t.Errorf("%v", entry)
	}
}
