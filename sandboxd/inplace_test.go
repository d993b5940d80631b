package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An upload writes the file that is there: hard links and open descriptors see what
// came, links are written through, the mode stays, and no other name appears.
func TestUploadInPlace(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	path := dir + "/f"
	must(t, os.WriteFile(path, []byte("old and longer"), 0o640), os.Chmod(path, 0o750),
		os.Link(path, dir+"/hard"), os.Symlink("f", dir+"/soft"), os.Symlink(dir+"/made", dir+"/dangling"))
	open, err := os.Open(path)
	must(t, err)
	defer func() { _ = open.Close() }()
	for i, name := range []string{"f", "soft", "hard"} {
		text := fmt.Sprint("new ", i)
		a.want(200, "", "POST", filesURL(dir+"/"+name), text, "Content-Type", octets)
		held, err := io.ReadAll(io.NewSectionReader(open, 0, 100))
		if err != nil || string(held) != text || content(t, dir+"/hard") != text {
			t.Errorf("written by %s: the open file holds %q (%v), its hard link %q", name, held, err, content(t, dir+"/hard"))
		}
	}
	a.want(200, "", "POST", filesURL(dir+"/dangling"), "made", "Content-Type", octets)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o750 || content(t, dir+"/made") != "made" {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"dangling", "f", "hard", "made", "soft"}) {
		t.Errorf("%q", got)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A watcher hears of a new file before its content, and of one that was there as
// written alone.
func TestUploadsEventsInOrder(t *testing.T) {
	a := newAgent(t, Options{})
	dir := t.TempDir()
	w := a.watch(dir, false)
	for i := range 25 {
		name := fmt.Sprint("f", i)
		a.want(200, "", "POST", filesURL(dir+"/"+name), "x", "Content-Type", octets)
		w.want("a new file", "CREATE "+name, "WRITE "+name)
		a.want(200, "", "POST", filesURL(dir+"/"+name), "yy", "Content-Type", octets)
		must(t, os.Remove(dir+"/"+name))
		w.want("one that was there", "WRITE "+name, "REMOVE "+name)
	}
}

// What fails half way leaves nothing where nothing was; a file that was there is left
// with what came, and nothing lies beside it.
func TestFailedUploadLeavesNoNewFile(t *testing.T) {
	t.Run("in sandboxd", func(t *testing.T) { failedUploadLeavesNoNewFile(t, newAgent(t, Options{})) })
	t.Run("as root", func(t *testing.T) { failedUploadLeavesNoNewFile(t, newAgent(t, asRoot(t))) })
}

func failedUploadLeavesNoNewFile(t *testing.T, a *agent) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/old", []byte("old"), 0o600), os.Symlink("target", dir+"/dangling"))
	whole := zipped(strings.Repeat("new", 100_000))
	half, corrupt := whole[:len(whole)/2], whole[:len(whole)-6]+"xxxxxx"
	for _, name := range []string{"new", "deep/new", "dangling", "old"} {
		a.want(400, "", "POST", filesURL(dir+"/"+name), half, "Content-Type", octets, "Content-Encoding", "gzip")
		a.want(400, "", "POST", filesURL(dir+"/"+name), corrupt, "Content-Type", octets, "Content-Encoding", "gzip")
	}
	a.want(400, "", "POST", filesURL(dir+"/form"), "--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\ncut", "Content-Type", "multipart/form-data; boundary=x")
	// A client that goes away in the middle.
	body, send := io.Pipe()
	req, err := http.NewRequest("POST", a.url+filesURL(dir+"/gone"), body)
	must(t, err)
	req.Header.Set("Content-Type", octets)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if res, err := a.client.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	_, err = io.WriteString(send, "half")
	must(t, err)
	eventually(t, "the file", func() bool { return slices.Contains(names(t, dir), "gone") })
	_ = send.CloseWithError(errors.New("gone"))
	<-ended
	eventually(t, "its removal", func() bool { return !slices.Contains(names(t, dir), "gone") })
	if got := names(t, dir); !slices.Equal(got, []string{"dangling", "deep", "old"}) || len(names(t, dir+"/deep")) > 0 {
		t.Errorf("left: %q", got)
	}
}

// A file that cannot be written, since it is another user's or runs, is made anew where
// its directory allows that, and keeps its mode.
func TestUploadOverWhatCannotBeWritten(t *testing.T) {
	w := newWorker(t)
	for name, owner := range map[string]int{"mine": 1234, "roots": 0} {
		path := w.home + "/" + name
		must(t, os.WriteFile(path, []byte("old"), 0o444), os.Chmod(path, 0o444), os.Chown(path, owner, owner))
		w.want(200, "", "POST", filesURL(path), "new", "Content-Type", octets)
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o444 || ownerOf(info) != 1234 || content(t, path) != "new" {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	program, err := exec.LookPath("sleep")
	must(t, err)
	text, err := os.ReadFile(program)
	must(t, err, os.WriteFile(w.home+"/program", text, 0o755), os.Chown(w.home+"/program", 1234, 1234))
	running := exec.Command(w.home+"/program", "100")
	must(t, running.Start())
	defer func() { _ = running.Process.Kill(); _ = running.Wait() }()
	w.want(200, "", "POST", filesURL(w.home+"/program"), "new", "Content-Type", octets)
	if info, err := os.Stat(w.home + "/program"); err != nil || info.Mode() != 0o755 || content(t, w.home+"/program") != "new" {
		t.Errorf("a running program: %v %v", info, err)
	}
}

// mount mounts a file system of its own on a new directory.
func mount(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, kind, 0, options); err != nil {
		t.Skipf("mounting %s, which the test needs: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// A full disk is a 507, which leaves no new file. To write a file again takes no more
// space than the file.
func TestUploadToFullDisk(t *testing.T) {
	a := newAgent(t, Options{})
	dir := mount(t, "tmpfs", "size=1m,nr_inodes=6")
	most := strings.Repeat("x", 700<<10)
	for range 2 {
		a.want(200, "", "POST", filesURL(dir+"/f"), most, "Content-Type", octets)
	}
	a.want(507, "no space", "POST", filesURL(dir+"/g"), most, "Content-Type", octets)
	if got := names(t, dir); !slices.Equal(got, []string{"f"}) {
		t.Errorf("left: %q", got)
	}
	for i := range 4 {
		must(t, os.WriteFile(fmt.Sprint(dir, "/", i), nil, 0o600))
	}
	a.want(507, "no space", "POST", filesURL(dir+"/h"), "", "Content-Type", octets)
	a.want(200, "", "POST", filesURL(dir+"/f"), "small", "Content-Type", octets)
}
