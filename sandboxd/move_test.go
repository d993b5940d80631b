package sandboxd

import (
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// move moves an entry as a user; the empty one is the default.
func (a *agent) move(ctx context.Context, user, from, to string) error {
	req := connect.NewRequest(&filesystempb.MoveRequest{Source: from, Destination: to})
	if user != "" {
		req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	res, err := a.filesystem.Move(ctx, req)
	if err == nil && res.Msg.GetEntry().GetPath() != to {
		a.t.Errorf("the entry is %v", res.Msg.GetEntry())
	}
	return err
}

// described is all that a tree is, but for inode numbers: a line an entry.
func described(t *testing.T, root string) (lines []string) {
	t.Helper()
	numbers := map[uint64]int{}
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		info, err := os.Lstat(path)
		must(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		what := ""
		switch {
		case info.Mode().IsRegular():
			if _, known := numbers[stat.Ino]; !known {
				numbers[stat.Ino] = len(numbers)
			}
			value := make([]byte, 100)
			n, _ := unix.Getxattr(path, "user.e2b.key", value)
			what = fmt.Sprint(numbers[stat.Ino], " ", stat.Nlink, " ", len(content(t, path)), " ", content(t, path)[:min(10, info.Size())], " ", string(value[:max(0, n)]))
		case info.Mode()&fs.ModeSymlink != 0:
			what, err = os.Readlink(path)
			must(t, err)
		}
		lines = append(lines, fmt.Sprintf("%s %v %d:%d %v %s", strings.TrimPrefix(path, root), info.Mode(), stat.Uid, stat.Gid, info.ModTime().UnixNano(), what))
		return nil
	}))
	return lines
}

// tree makes one of every kind of entry.
func tree(t *testing.T, root string) {
	t.Helper()
	must(t, os.MkdirAll(root+"/deep/er", 0o755), os.Mkdir(root+"/empty", 0o700),
		os.WriteFile(root+"/f", []byte("content"), 0o640), os.WriteFile(root+"/deep/program", []byte("#!/bin/sh"), 0o755),
		os.Link(root+"/f", root+"/deep/hard"), os.Symlink("../f", root+"/deep/soft"), os.Symlink("/nowhere/at/all", root+"/broken"),
		syscall.Mkfifo(root+"/fifo", 0o620), os.WriteFile(root+"/sparse", []byte("head"), 0o600), os.Truncate(root+"/sparse", 1<<20),
		os.Chmod(root+"/deep/program", 0o4755), os.Chown(root+"/deep/program", 1234, 1235), os.Chmod(root+"/deep/er", 0o555),
		unix.Setxattr(root+"/f", "user.e2b.key", []byte("value"), 0))
	f, err := os.OpenFile(root+"/sparse", os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("middle"), 500_000)
	must(t, err, f.Close(), os.Chtimes(root+"/f", time.Unix(1, 2), time.Unix(3, 4000)), os.Chtimes(root+"/deep", time.Unix(5, 6), time.Unix(7, 8000)),
		unix.UtimesNanoAt(unix.AT_FDCWD, root+"/broken", []unix.Timespec{{Sec: 9}, {Sec: 10}}, unix.AT_SYMLINK_NOFOLLOW))
}

// What cannot be renamed since it would leave its mount arrives as it was, and is told to
// watchers as a rename is.
func TestMoveAcrossMounts(t *testing.T) {
	a := newAgent(t, Options{})
	one, two := t.TempDir(), mount(t, "tmpfs", "size=32m")
	if unix.Setxattr(two, "user.probe", nil, 0) != nil {
		t.Skip("tmpfs keeps no attributes of users on this kernel")
	}
	tree(t, one+"/tree")
	want := described(t, one+"/tree")
	w := a.watch(two, true)
	for _, way := range [][2]string{{one + "/tree", two + "/new/place"}, {two + "/new/place", one + "/back"}} {
		must(t, a.move(t.Context(), "", way[0], way[1]))
		if got := described(t, way[1]); !slices.Equal(got, want) {
			t.Errorf("%s: %q\nwant %q", way[1], got, want)
		}
		if got := names(t, filepath.Dir(way[0])); len(got) > 0 && way[0] == one+"/tree" {
			t.Errorf("left: %q", got)
		}
	}
	for _, event := range w.take("REMOVE new/place") {
		if strings.Contains(event, ".sandboxd-") {
			t.Errorf("a watcher hears %q", event)
		}
	}
	info, err := os.Stat(one + "/back/sparse")
	if must(t, err); info.Sys().(*syscall.Stat_t).Blocks*512 > 100_000 {
		t.Errorf("the holes of a file are filled: %d blocks", info.Sys().(*syscall.Stat_t).Blocks)
	}
	// A file takes the place of another, a link moves itself.
	must(t, os.WriteFile(one+"/new", []byte("new"), 0o600), os.WriteFile(two+"/old", []byte("old"), 0o644), os.Symlink("new", one+"/link"))
	must(t, a.move(t.Context(), "", one+"/new", two+"/old"), a.move(t.Context(), "", one+"/link", two+"/link"))
	if target, err := os.Readlink(two + "/link"); content(t, two+"/old") != "new" || target != "new" || err != nil {
		t.Errorf("%q, %q, %v", content(t, two+"/old"), target, err)
	}
	if got := names(t, one); !slices.Equal(got, []string{"back"}) {
		t.Errorf("left: %q", got)
	}
}

// A folder of the image is one that overlayfs cannot rename.
func TestMoveOfTheImagesFolder(t *testing.T) {
	a := newAgent(t, Options{})
	base := t.TempDir()
	must(t, os.Mkdir(base+"/image", 0o755), os.Mkdir(base+"/upper", 0o755), os.Mkdir(base+"/work", 0o755))
	tree(t, base+"/image/app")
	want := described(t, base+"/image/app")
	root := mount(t, "overlay", fmt.Sprintf("lowerdir=%s/image,upperdir=%[1]s/upper,workdir=%[1]s/work", base))
	if err := syscall.Rename(root+"/app", root+"/probe"); err == nil {
		t.Skip("this kernel's overlayfs renames such folders (redirect_dir)")
	}
	must(t, a.move(t.Context(), "", root+"/app", root+"/moved"))
	if got := described(t, root+"/moved"); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := names(t, root); !slices.Equal(got, []string{"moved"}) {
		t.Errorf("there is %q", got)
	}
}

// A move that fails has changed nothing.
func TestMoveIsAllOrNothing(t *testing.T) {
	w := newWorker(t)
	there := mount(t, "tmpfs", "size=1m,mode=1777")
	must(t, os.WriteFile(there+"/old", []byte("old"), 0o666), os.Chown(there+"/old", 1234, 1234))
	mine := w.home + "/mine"
	must(t, os.MkdirAll(mine+"/a", 0o755), os.WriteFile(mine+"/a/f", []byte("f"), 0o644), os.WriteFile(mine+"/b", []byte("b"), 0o644),
		filepath.WalkDir(mine, func(path string, _ fs.DirEntry, _ error) error { return os.Chown(path, 1234, 1234) }))
	for what, c := range map[string]struct {
		prepare, undo func() error
		user, from    string
		code          connect.Code
	}{
		"a full disk": {
			prepare: func() error { return os.WriteFile(mine+"/c", make([]byte, 2<<20), 0o644) },
			undo:    func() error { return os.Remove(mine + "/c") }, code: connect.CodeResourceExhausted,
		},
		"a file that the user may not read": {
			prepare: func() error { return os.WriteFile(mine+"/c", nil, 0o600) },
			undo:    func() error { return os.Remove(mine + "/c") }, code: connect.CodePermissionDenied,
		},
		"a folder that the user may not empty": {
			prepare: func() error { return os.Chmod(mine+"/a", 0o555) },
			undo:    func() error { return os.Chmod(mine+"/a", 0o755) }, code: connect.CodePermissionDenied,
		},
		"a folder in which the user may not remove": {
			prepare: func() error { return os.Chown(w.home, 0, 0) },
			undo:    func() error { return os.Chown(w.home, 1234, 1234) }, code: connect.CodePermissionDenied,
		},
		"a sticky folder": {
			prepare: func() error {
				_ = os.Chown(mine+"/a", 0, 0)
				return unix.Chmod(mine+"/a", 0o1777)
			},
			undo: func() error { return os.Chmod(mine+"/a", 0o755) }, code: connect.CodePermissionDenied,
		},
		"a mount below": {
			prepare: func() error { return unix.Mount("none", mine+"/a", "tmpfs", 0, "mode=777") },
			undo:    func() error { return unix.Unmount(mine+"/a", 0) }, code: connect.CodeFailedPrecondition,
		},
		"the kernel's file": {user: "root", from: "/proc/self/environ", code: connect.CodePermissionDenied},
	} {
		if c.prepare != nil {
			must(t, c.prepare())
		}
		if what == "a sticky folder" {
			must(t, os.Chown(mine+"/a/f", 0, 0))
		}
		from := mine
		if c.from != "" {
			from = c.from
		}
		before := append(names(t, mine), names(t, mine+"/a")...)
		for _, to := range []string{there + "/new", there + "/deep/er/new"} {
			wantCode(t, what, w.move(t.Context(), c.user, from, to), c.code)
		}
		if got := append(names(t, mine), names(t, mine+"/a")...); !slices.Equal(got, before) {
			t.Errorf("%s: the source has %q, had %q", what, got, before)
		}
		if got := names(t, there); !slices.Equal(got, []string{"old"}) {
			t.Errorf("%s: the destination has %q", what, got)
		}
		if c.undo != nil {
			must(t, c.undo())
		}
		if what == "a sticky folder" {
			must(t, os.Chown(mine+"/a/f", 1234, 1234), os.Chown(mine+"/a", 1234, 1234))
		}
	}
	must(t, os.WriteFile(w.home+"/big", make([]byte, 2<<20), 0o644), os.Chown(w.home+"/big", 1234, 1234))
	wantCode(t, "over a file", w.move(t.Context(), "", w.home+"/big", there+"/old"), connect.CodeResourceExhausted)
	wantCode(t, "a folder over a file", w.move(t.Context(), "", mine, there+"/old"), connect.CodeInvalidArgument)
	if content(t, there+"/old") != "old" || !slices.Equal(names(t, there), []string{"old"}) {
		t.Errorf("the destination: %q, %q", content(t, there+"/old"), names(t, there))
	}
	must(t, w.move(t.Context(), "", mine, there+"/mine"))
	if info, err := os.Stat(there + "/mine/a/f"); err != nil || ownerOf(info) != 1234 {
		t.Errorf("what the user moved: %v %v", info, err)
	}
	w.unchanged("moves")
}
