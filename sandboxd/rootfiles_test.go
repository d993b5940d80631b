package sandboxd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/rootfiles"
)

// asRoot returns the options by which the default user may become root, and its file calls
// act as root. It needs root.
func asRoot(t testing.TB) Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acting as root needs root")
	}
	return Options{FileServer: "/proc/self/exe", SudoSocket: t.TempDir() + "/sudo.sock"}
}

// owned fails the test unless a file has an owner.
func owned(t *testing.T, path string, uid uint32) {
	t.Helper()
	if info, err := os.Lstat(path); err != nil || ownerOf(info) != uid {
		t.Errorf("%s is not the user %d's: %v %v", path, uid, info, err)
	}
}

// As at E2B, the user's file calls reach all files, and the user gets what they make.
func TestFileCallsActAsRoot(t *testing.T) {
	w := newRootWorker(t)
	ctx, fs := t.Context(), w.filesystem
	w.want(200, secretText, "GET", filesURL(w.secret), "")
	w.want(200, secretText, "GET", filesURL("secret"), "") // a link in the home
	w.want(404, "does not exist", "GET", filesURL(w.private+"/absent"), "")
	w.want(200, `"kind":"text"`, "POST", filesURL(w.etc+"/app/src/main.py"), "print()", "Content-Type", octets, "X-Metadata-Kind", "text")
	w.want(200, "print()", "GET", filesURL(w.etc+"/app/src/main.py"), "")
	w.want(200, "", "POST", filesURL(w.etc+"/profile"), "changed", "Content-Type", octets)
	for _, path := range []string{"/app", "/app/src", "/app/src/main.py", "/profile"} {
		owned(t, w.etc+path, 1234)
	}
	if got := content(t, w.etc+"/profile"); got != "changed" {
		t.Errorf("the file holds %q", got)
	}
	w.want(200, "", "POST", filesURL(w.etc+"/ofroot")+"&username=root", "x", "Content-Type", octets)
	owned(t, w.etc+"/ofroot", 0)
	w.want(400, "", "POST", filesURL(w.etc+"/cut"), "no gzip", "Content-Type", octets, "Content-Encoding", "gzip")
	w.want(200, "", "POST", "/files/compose", fmt.Sprintf(`{"source_paths":["%s","%s/profile"],"destination":"%[2]s/all"}`, w.secret, w.etc))
	owned(t, w.etc+"/all", 1234)
	if got := content(t, w.etc+"/all"); got != secretText+"changed" {
		t.Errorf("composed: %q", got)
	}
	w.want(400, "same", "POST", "/files/compose", fmt.Sprintf(`{"source_paths":["%s/all"],"destination":"%[1]s/../etc/all"}`, w.etc))
	if made, err := fs.MakeDir(ctx, connect.NewRequest(&filesystempb.MakeDirRequest{Path: w.private + "/workspace/deep"})); err != nil || made.Msg.GetEntry().GetOwner() != "worker" {
		t.Errorf("make: %v %v", made, err)
	}
	owned(t, w.private, 0)
	owned(t, w.private+"/workspace", 1234)
	if _, err := fs.Move(ctx, connect.NewRequest(&filesystempb.MoveRequest{Source: w.etc + "/ofroot", Destination: w.private + "/new/ofroot"})); err != nil {
		t.Error(err)
	}
	owned(t, w.private+"/new", 1234)
	owned(t, w.private+"/new/ofroot", 0)
	if list, err := fs.ListDir(ctx, connect.NewRequest(&filesystempb.ListDirRequest{Path: w.private})); err != nil || len(list.Msg.GetEntries()) != 2 {
		t.Errorf("list: %v %v", list, err)
	}
	if _, err := fs.Remove(ctx, connect.NewRequest(&filesystempb.RemoveRequest{Path: w.private})); err != nil {
		t.Error(err)
	}
	_, err := w.stat(w.private)
	wantCode(t, "stat of what is removed", err, connect.CodeNotFound)
	if entry, err := w.stat("."); err != nil || entry.GetPath() != w.home {
		t.Errorf("the user's home: %v %v", entry, err)
	}
}

// Watchers hear of changes of owner: those of an upload, as at E2B, and those of programs.
func TestChangesOfOwnerAreSeen(t *testing.T) {
	w := newRootWorker(t)
	seen := w.watch(w.private, false)
	w.want(200, "", "POST", filesURL(w.private+"/f"), "x", "Content-Type", octets)
	seen.want("a new file", "CREATE f", "CHMOD f", "WRITE f")
	w.want(200, "", "POST", filesURL(w.secret), "", "Content-Type", octets)
	seen.want("an old file", "CHMOD secret")
	must(t, os.Chown(w.private+"/f", 0, 0), os.WriteFile(w.private+"/end", nil, 0o600))
	if all := seen.take("CREATE end"); !strings.Contains(strings.Join(all, " "), "CHMOD f") {
		t.Errorf("a program's chown: %q", all)
	}
}

// rights are the lines of /proc/PID/status that say what a process may do.
func rights(status string) (all []string) {
	for line := range strings.Lines(status) {
		name, _, _ := strings.Cut(line, ":")
		switch name {
		case "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp":
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// child returns the process that does file calls as root.
func (w *worker) child() int {
	w.t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	must(w.t.(*testing.T), err)
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if strings.HasPrefix(string(line), rootfiles.Name+"\x00") {
				pid, _ := strconv.Atoi(field)
				return pid
			}
		}
	}
	w.t.Fatal("there is no child")
	return 0
}

// Root's file calls have what a command of root's has, and nothing of sandboxd's own: /proc/self
// is another process, with no variable and no socket of sandboxd's.
func TestRootsFileCallsHaveNothingOfSandboxd(t *testing.T) {
	t.Setenv("HIDDEN", "hunter2")
	w := newRootWorker(t)
	entry, err := w.stat("/proc/self")
	child := w.child()
	if err != nil || entry.GetSymlinkTarget() != fmt.Sprintf("/proc/%d", child) || child == os.Getpid() {
		t.Errorf("/proc/self is %v, and the child %d: %v", entry, child, err)
	}
	proc := fmt.Sprintf("/proc/%d/", child)
	if got := strings.Trim(content(t, proc+"environ"), "\x00"); strings.Contains(got, "\x00") || !strings.HasPrefix(got, "PATH=") {
		t.Errorf("it has %d variables instead of PATH", strings.Count(got, "\x00")+1)
	}
	command := w.start(shell("cat /proc/self/status"), "Authorization", "Basic cm9vdDo=").wait()
	if a, b := fmt.Sprint(rights(content(t, proc+"status"))), fmt.Sprint(rights(command.stdout.String())); a != b {
		t.Errorf("its rights: %s, and those of root's command %s", a, b)
	}
	own := descriptors(t)
	list, err := w.filesystem.ListDir(t.Context(), connect.NewRequest(&filesystempb.ListDirRequest{Path: "/proc/self/fd"}))
	must(t, err)
	if len(list.Msg.GetEntries()) < 4 {
		t.Errorf("it has open: %v", list)
	}
	for _, e := range list.Msg.GetEntries() {
		if target := filepath.Base(e.GetSymlinkTarget()); strings.HasPrefix(target, "socket:") && own[target] {
			t.Errorf("it has sandboxd's %s", target)
		}
	}
}

// descriptors returns what this process has open.
func descriptors(t *testing.T) map[string]bool {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	all := map[string]bool{}
	for _, name := range names {
		target, _ := os.Readlink("/proc/self/fd/" + name.Name())
		all[target] = true
	}
	return all
}

// While folders become links to root's and back, no folder that was root's is given away.
func TestRacesOfLinksGiveNothingAway(t *testing.T) {
	w := newRootWorker(t)
	place := w.home + "/place"
	must(t, os.Mkdir(place, 0o755), os.Mkdir(w.etc+"/made", 0o755), os.Symlink(w.etc, w.home+"/swap"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			_, _ = w.filesystem.MakeDir(t.Context(), connect.NewRequest(&filesystempb.MakeDirRequest{Path: fmt.Sprintf("%s/made/%d", place, i)}))
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		_ = os.RemoveAll(place + "/made")
		_, _, _ = os.Rename(place, w.home+"/away"), os.Rename(w.home+"/swap", place), os.Rename(place, w.home+"/swap")
		_ = os.Rename(w.home+"/away", place)
	}
	owned(t, w.etc, 0)
	owned(t, w.etc+"/made", 0)
}

// The child's answer to a watch goes on after its first bytes, also if these come before sandboxd
// has seen the end of the request: about one of a hundred watches was cut.
func TestWatchesAreNotCut(t *testing.T) {
	w := newRootWorker(t)
	for i := range 150 {
		dir := fmt.Sprint(w.private, "/", i)
		_, err := w.filesystem.MakeDir(t.Context(), connect.NewRequest(&filesystempb.MakeDirRequest{Path: dir}))
		must(t, err)
		stream, err := w.filesystem.WatchDir(t.Context(), connect.NewRequest(&filesystempb.WatchDirRequest{Path: dir}))
		must(t, err)
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		_, err = w.filesystem.MakeDir(t.Context(), connect.NewRequest(&filesystempb.MakeDirRequest{Path: dir + "/made"}))
		must(t, err)
		if !stream.Receive() {
			t.Fatalf("watch %d: %v", i, stream.Err())
		}
		_ = stream.Close()
	}
}

// After the child's death its calls fail, with an error that says so, and the next one starts
// another.
func TestDeathOfTheChild(t *testing.T) {
	w := newRootWorker(t)
	stream, err := w.filesystem.WatchDir(t.Context(), connect.NewRequest(&filesystempb.WatchDirRequest{Path: w.private}))
	must(t, err)
	defer func() { _ = stream.Close() }()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	first := w.child()
	must(t, syscall.Kill(first, syscall.SIGKILL))
	for stream.Receive() {
	}
	if stream.Err() == nil {
		t.Error("the watch ended as if all were well")
	}
	eventually(t, "a new child", func() bool {
		res, _ := w.do("GET", filesURL(w.secret), "")
		_, err := w.stat(w.secret)
		return res.StatusCode == 200 && err == nil
	})
	if w.child() == first {
		t.Error("it lives")
	}
}

// The calls of a frozen sandbox, whose child stands still, keep nobody from keeping its files:
// neither those that the child has nor one that would start it.
func TestFrozenChildKeepsNoArchive(t *testing.T) {
	for _, name := range []string{"running", "not started"} {
		t.Run(name, func(t *testing.T) {
			g, f := newGateway("pod-1"), &stubFreezer{}
			options := asRoot(t)
			options.Freezer, options.Layer = f, tempLayer(t)
			a := newAgent(t, g.options(options))
			g.init(a, 204, "", `{}`)
			w := &worker{agent: a}
			if name == "running" {
				if _, err := w.stat("/"); err != nil {
					t.Fatal(err)
				}
				child := w.child()
				must(t, syscall.Kill(child, syscall.SIGSTOP))
				defer func() { _ = syscall.Kill(child, syscall.SIGCONT) }()
			}
			begun := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				close(begun)
				_, _ = a.stat("/")
			}()
			<-begun
			if status := g.order(a, "freeze", 2); status != 204 {
				t.Fatalf("freeze: %d", status)
			}
			eventually(t, "the files are kept", func() bool {
				status, _ := g.command(a, "archive", `{"frozen":true}`, "")
				return status == 200
			})
			<-ended
		})
	}
}

// Calls act as root only where the default user may become root by sudo without a password.
func TestWhoseRightsFileCallsHave(t *testing.T) {
	for name, tc := range map[string]struct {
		sudo   string // the image's; none if it is empty
		mode   os.FileMode
		uid    int
		server string
		status int
	}{
		"without sudo":                    {"", 0, 0, "/proc/self/exe", 403},
		"with the image's sudo":           {"exit 0", 0o4755, 0, "/proc/self/exe", 200},
		"with a sudo that asks":           {"exit 1", 0o4755, 0, "/proc/self/exe", 403},
		"with a sudo that nobody trusts":  {"exit 0", 0o755, 0, "/proc/self/exe", 403},
		"with a sudo of the user's":       {"exit 0", 0o4755, 1234, "/proc/self/exe", 403},
		"if they have the user's, always": {"exit 0", 0o4755, 0, "", 403},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))
			if tc.sudo != "" {
				must(t, os.WriteFile(dir+"/sudo", []byte("#!/bin/sh\n[ \"$*\" = '-n true' ] && [ $(id -u) = 1234 ] || exit 2\n"+tc.sudo+"\n"), 0o755),
					os.Chown(dir+"/sudo", tc.uid, 0), syscall.Chmod(dir+"/sudo", uint32(tc.mode)))
			}
			w := newWorkerWith(t, Options{FileServer: tc.server, Environ: []string{"PATH=" + dir + ":/usr/bin:/bin"}})
			res, body := w.do("GET", filesURL(w.secret), "")
			if res.StatusCode != tc.status {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		})
	}
}

// The variable has one value; another one is no way to root's rights.
func TestFileRightsOfTheEnvironment(t *testing.T) {
	for value, want := range map[string]string{"": "/proc/self/exe", "user": "", "root": "error", "users": "error"} {
		t.Setenv(fileRightsEnv, value)
		o, _, err := parse(nil, io.Discard)
		if err != nil {
			o.FileServer = "error"
		}
		if o.FileServer != want {
			t.Errorf("%q: %q, %v", value, o.FileServer, err)
		}
	}
}
