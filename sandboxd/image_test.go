package sandboxd

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// Commands and relative paths begin in the image's working directory, unless /init
// says another.
func TestWorkdirOfTheImage(t *testing.T) {
	image, other := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(image, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, Options{Workdir: image})
	req := &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "pwd"}}
	a.wantLines("without a directory", req, image)
	req.Process.Cwd = new("below")
	a.wantLines("a relative directory", req, filepath.Join(image, "below"))
	a.want(200, filepath.Join(image, "f"), "POST", "/files?path=f", "text", "Content-Type", "application/octet-stream")
	a.want(200, "text", "GET", "/files?path="+filepath.Join(image, "f"), "")
	a.want(204, "", "POST", "/init", `{"defaultWorkdir":"`+other+`"}`)
	req.Process.Cwd = nil
	a.wantLines("after /init", req, other)
}

// sandboxd's own working directory is the image's, unless that is /, where
// containers of images without one begin.
func TestWorkdirOfTheProcess(t *testing.T) {
	dir := t.TempDir()
	for at, want := range map[string]string{dir: dir, "/": ""} {
		t.Chdir(at)
		if o, _, err := parse(nil, io.Discard); err != nil || o.Workdir != want {
			t.Errorf("in %s: %q, %v, want %q", at, o.Workdir, err, want)
		}
	}
	t.Chdir(dir)
	if o, _, err := parse([]string{"-home", "."}, io.Discard); err != nil || o.Workdir != "" {
		t.Errorf("with a home: %q, %v", o.Workdir, err)
	}
}

func TestUserOfTheImage(t *testing.T) {
	dir := t.TempDir()
	passwd := "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(dir, "passwd"), []byte(passwd), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user, want string
		uid        int
		fails      bool
	}{
		{user: "node", want: "node"}, {user: "node:staff", want: "node"}, {user: "1000", want: "node"}, {user: "1000:7", want: "node"},
		{user: "root", want: "root"}, {user: ""}, {user: "nobody-here", fails: true}, {user: "1234", fails: true},
		{user: "node", uid: 1}, // which cannot act for others
	} {
		database := users.Database{Dir: dir, UID: func() int { return c.uid }}
		got, err := userOfImage([]string{"X=", "SANDBOXD_USER=" + c.user}, database)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%q as %d: %q, %v, want %q", c.user, c.uid, got, err, c.want)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("who is not root sees no more of it")
		return
	}
	a := newAgent(t, Options{Environ: []string{"SANDBOXD_USER=nobody"}})
	req := &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "id", Args: []string{"-un"}}}
	a.wantLines("the default", req, "nobody")
	a.want(204, "", "POST", "/init", `{"defaultUser":"root"}`)
	a.wantLines("after /init", req, "root")
	a = newAgent(t, Options{DefaultUser: "root", Environ: []string{"SANDBOXD_USER=nobody"}})
	a.wantLines("with the flag", req, "root")
}
