package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// worker is a user of the sandbox whose home holds links to what only root may use.
type worker struct {
	*agent
	home, private string // private and all in it are root's alone
	secret, etc   string // a file with mode 0600 in private, and a directory with mode 0755 that is root's
}

const secretText = "root's"

// newWorker starts sandboxd for a user of no group but its own. It needs root.
func newWorker(t *testing.T) *worker {
	t.Helper()
	return newWorkerWith(t, Options{})
}

// newRootWorker is newWorker where the user's file calls act as root.
func newRootWorker(t *testing.T) *worker {
	t.Helper()
	return newWorkerWith(t, asRoot(t))
}

func newWorkerWith(t *testing.T, options Options) *worker {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acting for another user needs root")
	}
	dir := t.TempDir()
	w := &worker{home: dir + "/home", private: dir + "/private", etc: dir + "/etc"}
	w.secret = w.private + "/secret"
	must(t, os.Chmod(filepath.Dir(dir), 0o755), os.Mkdir(w.home, 0o755), os.Chown(w.home, 1234, 1234),
		os.Mkdir(w.private, 0o700), os.Mkdir(w.etc, 0o755), os.Mkdir(dir+"/db", 0o755),
		os.WriteFile(w.secret, []byte(secretText), 0o600), os.WriteFile(w.etc+"/profile", []byte(secretText), 0o644),
		os.Symlink(w.secret, w.home+"/secret"), os.Symlink(w.private, w.home+"/private"),
		os.Symlink(w.etc+"/profile", w.home+"/profile"), os.Symlink(w.etc, w.home+"/etc"), os.Symlink(w.etc+"/new", w.home+"/new"),
		os.WriteFile(dir+"/db/passwd", []byte("root:x:0:0::/root:/bin/sh\nworker:x:1234:1234::"+w.home+":/bin/sh\n"), 0o644))
	options.UserFiles, options.DefaultUser = dir+"/db", "worker"
	w.agent = newAgent(t, options)
	return w
}

// unchanged fails the test if anything of root's is not as it was.
func (w *worker) unchanged(what string) {
	w.t.Helper()
	for dir, name := range map[string]string{w.private: "secret", w.etc: "profile"} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != name {
			w.t.Fatalf("%s: %s has %v: %v", what, dir, entries, err)
		}
		if text, err := os.ReadFile(dir + "/" + name); err != nil || string(text) != secretText {
			w.t.Fatalf("%s: %s/%s holds %q: %v", what, dir, name, text, err)
		}
		if info, err := os.Stat(dir + "/" + name); err != nil || ownerOf(info) != 0 {
			w.t.Fatalf("%s: %s/%s is not root's any more: %v", what, dir, name, err)
		}
	}
}

// Contents: nothing of root's is read or written for a user who may not, by its own path
// or by links in the user's home.
func TestContentsWithTheUsersRights(t *testing.T) {
	w := newWorker(t)
	for _, path := range []string{w.home + "/secret", w.home + "/private/secret", w.secret} {
		w.want(403, "", "GET", filesURL(path), "")
		w.want(403, "", "GET", filesURL(path), "", "Accept-Encoding", "gzip")
	}
	for _, path := range []string{"secret", "private/secret", "private/made", "private/deep/made", "profile", "etc/profile", "etc/made", "etc/deep/made", "new"} {
		w.want(403, "", "POST", filesURL(w.home+"/"+path), "taken", "Content-Type", octets)
		w.unchanged("a write to " + path)
	}
	must(t, os.WriteFile(w.home+"/part", []byte("mine"), 0o644))
	for _, names := range [][2]string{{"secret", "all"}, {"part", "profile"}, {"part", "new"}, {"etc/profile", "private/x"}, {"etc/profile", "all"}} {
		w.want(403, "", "POST", "/files/compose", fmt.Sprintf(`{"source_paths":["%s/%s"],"destination":"%[1]s/%[3]s"}`, w.home, names[0], names[1]))
		w.unchanged("compose of " + names[0])
	}
	if content(t, w.home+"/part") != "mine" {
		t.Error("a source is gone though nothing was composed")
	}
	sticky := filepath.Dir(w.home) + "/sticky" // as /tmp: each replaces own files alone
	must(t, os.Mkdir(sticky, 0o777), os.Chmod(sticky, 0o777|os.ModeSticky), os.WriteFile(sticky+"/f", []byte(secretText), 0o644))
	w.want(403, "", "POST", filesURL(sticky+"/f"), "taken", "Content-Type", octets)
	if content(t, sticky+"/f") != secretText {
		t.Error("root's file in a sticky directory was replaced")
	}
	must(t, os.Chmod(sticky+"/f", 0o666))
	w.want(200, "", "POST", filesURL(sticky+"/f"), "shared", "Content-Type", octets)
	if entries, _ := os.ReadDir(sticky); content(t, sticky+"/f") != "shared" || len(entries) != 1 {
		t.Errorf("a file that all may write: %q, beside %v", content(t, sticky+"/f"), entries)
	}
	// What the user may do goes on, and is the user's.
	w.want(200, "", "POST", filesURL(w.home+"/a/b"), "own", "Content-Type", octets, "X-Metadata-Kind", "text")
	w.want(200, "own", "GET", filesURL(w.home+"/a/b"), "")
	w.want(200, secretText, "GET", filesURL(w.home+"/profile"), "")
	for _, path := range []string{"/a", "/a/b"} {
		if info, err := os.Stat(w.home + path); err != nil || ownerOf(info) != 1234 {
			t.Errorf("%s is not the user's: %v", path, err)
		}
	}
	// root's rights are for those who ask for them.
	w.want(200, secretText, "GET", filesURL(w.home+"/secret")+"&username=root", "")
}

// What this process holds open is no way to it: the links of procfs lead past the rights
// that the path there would need.
func TestContentsWithoutLinksOfProcfs(t *testing.T) {
	t.Run("as the user", func(t *testing.T) { contentsWithoutLinksOfProcfs(t, newWorker(t)) })
	t.Run("as root", func(t *testing.T) { contentsWithoutLinksOfProcfs(t, newRootWorker(t)) })
}

func contentsWithoutLinksOfProcfs(t *testing.T, w *worker) {
	dir := filepath.Dir(w.home) + "/closed"
	must(t, os.Mkdir(dir, 0o700), os.WriteFile(dir+"/f", []byte(secretText), 0o666), os.Chmod(dir+"/f", 0o666))
	held, err := os.Open(dir + "/f")
	must(t, err)
	defer func() { _ = held.Close() }()
	link := fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	must(t, os.Symlink(link, w.home+"/held"))
	for _, path := range []string{link, w.home + "/held", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd())} {
		for _, request := range [][]string{
			{"GET", filesURL(path), ""}, {"POST", filesURL(path), "taken"},
			{"POST", "/files/compose", fmt.Sprintf(`{"source_paths":["%s"],"destination":"%s/all"}`, path, w.home)},
		} {
			res, body := w.do(request[0], request[1], request[2], "Content-Type", octets)
			if res.StatusCode/100 != 4 || strings.Contains(body, secretText) {
				t.Errorf("%s %s: %d %q", request[0], request[1], res.StatusCode, body)
			}
		}
	}
	if got := content(t, dir+"/f"); got != secretText {
		t.Errorf("the file holds %q", got)
	}
}

// An upload that fails after its directory became a link removes nothing there.
func TestFailedUploadRemovesWithTheUsersRights(t *testing.T) {
	t.Run("as the user", func(t *testing.T) { failedUploadRemoves(t, newWorker(t)) })
	t.Run("as root", func(t *testing.T) { failedUploadRemoves(t, newRootWorker(t)) })
}

func failedUploadRemoves(t *testing.T, w *worker) {
	place := w.home + "/place"
	must(t, os.Mkdir(place, 0o755), os.Chown(place, 1234, 1234))
	body, send := io.Pipe()
	req, err := http.NewRequest("POST", w.url+filesURL(place+"/f"), body)
	must(t, err)
	req.Header.Set("Content-Type", octets)
	req.Header.Set("Content-Encoding", "gzip")
	answered := make(chan int, 1)
	go func() {
		status := 0
		if res, err := w.client.Do(req); err == nil {
			status = res.StatusCode
			_ = res.Body.Close()
		}
		answered <- status
	}()
	defer func() { _ = send.Close() }()
	whole := zipped(strings.Repeat("x", 1000))
	_, err = io.WriteString(send, whole[:len(whole)/2])
	must(t, err)
	var name string
	eventually(t, "the upload's own file", func() bool {
		entries, _ := os.ReadDir(place)
		if len(entries) == 1 {
			name = entries[0].Name()
		}
		return name != ""
	})
	must(t, os.WriteFile(w.etc+"/"+name, nil, 0o644), os.Rename(place, w.home+"/away"), os.Symlink(w.etc, place))
	_ = send.Close() // half of it is no gzip
	status := <-answered
	if entries, _ := os.ReadDir(w.etc); status != 400 || len(entries) != 2 {
		t.Errorf("%d, and root's directory has %v", status, entries)
	}
}

// Uploads, folders and removals while a directory of their path becomes a link to root's
// and back: some fail, and nothing of root's changes.
func TestRacesOfLinks(t *testing.T) {
	w := newWorker(t)
	place, away := w.home+"/place", w.home+"/away"
	must(t, os.Mkdir(place, 0o755), os.Chown(place, 1234, 1234), os.Symlink(w.etc, w.home+"/swap"))
	ctx, stop := context.WithCancel(t.Context())
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for ctx.Err() == nil {
			err := errors.Join(os.Rename(place, away), os.Rename(w.home+"/swap", place), os.Rename(place, w.home+"/swap"), os.Rename(away, place))
			if err != nil {
				_ = os.RemoveAll(away) // an upload made the directory anew meanwhile
				_ = os.RemoveAll(place)
				_, _ = os.Mkdir(place, 0o755), os.Chown(place, 1234, 1234)
				_ = os.Symlink(w.etc, w.home+"/swap")
			}
		}
	})
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for range 50 {
				_, _ = w.do("POST", filesURL(place+"/profile"), "taken", "Content-Type", octets)
				_, _ = w.filesystem.MakeDir(ctx, connect.NewRequest(&filesystempb.MakeDirRequest{Path: place + "/made"}))
				_, _ = w.filesystem.Remove(ctx, connect.NewRequest(&filesystempb.RemoveRequest{Path: place + "/profile"}))
			}
		})
	}
	working.Wait()
	stop()
	swapping.Wait()
	w.unchanged("a race")
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
