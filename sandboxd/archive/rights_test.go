package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lacking runs f in a thread without capabilities.
func lacking(t *testing.T, f func(), capabilities ...int) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var was [2]unix.CapUserData
	must(t, unix.Capget(&header, &was[0]))
	less := was
	for _, c := range capabilities {
		less[0].Effective &^= 1 << c
	}
	must(t, unix.Capset(&header, &less[0]))
	defer func() {
		if err := unix.Capset(&header, &was[0]); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// A process that may not give files away restores what it has kept, in folders of other
// users too; and it keeps nothing that it could not restore.
func TestWithoutTheRightToGiveFilesAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to have folders of another user")
	}
	from, to := image(t), image(t)
	for _, base := range []string{from, to} {
		must(t, os.Mkdir(filepath.Join(base, "tmp"), 0o777))
		must(t, os.Chmod(filepath.Join(base, "tmp"), 0o777|fs.ModeSticky))
		must(t, os.Chown(filepath.Join(base, "tmp"), 1000, 1000))
	}
	since := started(t, from, to)
	must(t, os.WriteFile(filepath.Join(from, "tmp/mine"), []byte("mine"), 0o600))
	lacking(t, func() {
		var data bytes.Buffer
		must(t, Write(t.Context(), &data, treeOf(from, since)))
		must(t, Extract(t.Context(), &data, treeOf(to, since)))
	}, unix.CAP_CHOWN, unix.CAP_FOWNER)
	same(t, seen(t, to), seen(t, from))

	must(t, os.WriteFile(filepath.Join(from, "tmp/theirs"), nil, 0o666))
	must(t, os.Chown(filepath.Join(from, "tmp/theirs"), 1000, 1000))
	lacking(t, func() {
		if err := Write(t.Context(), io.Discard, treeOf(from, since)); !errors.Is(err, ErrRights) {
			t.Errorf("a file of another user: %v", err)
		}
	}, unix.CAP_CHOWN, unix.CAP_FOWNER)
}

// asUser are the capabilities that a sandboxd with runAsUser has not.
var asUser = []int{unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH}

// theirs makes a folder of another user with files of this process's.
func theirs(t *testing.T, bases ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have folders of another user")
	}
	for _, base := range bases {
		in := func(name string) string { return filepath.Join(base, "their", name) }
		must(t, os.Mkdir(in(""), 0o755))
		for _, name := range []string{"db", "sealed", "one"} {
			must(t, os.WriteFile(in(name), bytes.Repeat([]byte("image"), 1000), 0o644))
		}
		must(t, errors.Join(os.Link(in("one"), in("two")), os.Symlink("nowhere", in("link")), unix.Mkfifo(in("pipe"), 0o600)))
		must(t, errors.Join(os.Chown(in(""), 1000, 1000), os.Mkdir(filepath.Join(base, "var/mine"), 0o555)))
	}
}

// A process that may not write a folder restores what was changed in its own files there.
func TestInFoldersOfOthers(t *testing.T) {
	from, to := image(t), image(t)
	theirs(t, from, to)
	since := started(t, from, to)
	in := func(name string) string { return filepath.Join(from, "their", name) }
	noted := false // attributes can be set here
	for name, text := range map[string]string{"db": "shorter", "sealed": "sealed", "one": "both"} {
		must(t, os.WriteFile(in(name), []byte(text), 0o644))
		noted = unix.Setxattr(in(name), "user.note=1", []byte("noted"), 0) == nil
	}
	_ = unix.Setxattr(filepath.Join(from, "var/mine"), "user.note=1", []byte("noted"), 0)
	must(t, errors.Join(os.Chmod(in("sealed"), 0o444), os.Chmod(in("one"), 0o755|fs.ModeSetuid)))
	must(t, errors.Join(os.Chmod(in("pipe"), 0o640), os.Link(in("db"), filepath.Join(from, "var/db"))))
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, in("link"), timesOf(time.Unix(1, 0)), unix.AT_SYMLINK_NOFOLLOW))
	var data bytes.Buffer
	lacking(t, func() {
		must(t, Write(t.Context(), &data, treeOf(from, since)))
		for range 2 { // the second time over what it has restored
			must(t, Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)))
		}
	}, asUser...)
	got := seen(t, to)
	same(t, got, seen(t, from))
	if noted && !strings.Contains(got["/their/db"], "note noted") {
		t.Errorf("without its attribute: %s", got["/their/db"])
	}
}

// A link that could not be restored is not kept.
func TestLinksIntoFoldersOfOthers(t *testing.T) {
	from := image(t)
	theirs(t, from)
	since := started(t, from)
	must(t, os.Link(filepath.Join(from, "their/db"), filepath.Join(from, "a name before")))
	lacking(t, func() {
		if err := Write(t.Context(), io.Discard, treeOf(from, since)); !errors.Is(err, ErrLink) {
			t.Errorf("%v", err)
		}
	}, asUser...)
	must(t, Write(t.Context(), io.Discard, treeOf(from, since)))
}

// What is too much for a restore is not kept, nor read.
func TestNamesAreBounded(t *testing.T) {
	o, err := treeOf(image(t), time.Now()).open()
	must(t, err)
	defer func() { must(t, o.close()) }()
	home, err := openat(o.mounts[0].fd, ".", openFolder, 0)
	must(t, err)
	defer func() { _ = unix.Close(home) }()
	a := &writer{opened: o, names: maxNames - len("user")}
	if _, err := a.list(home, "/home", true); !errors.Is(err, ErrNames) {
		t.Errorf("of a folder that is kept: %v", err)
	}
	if names, err := a.list(home, "/home", false); err != nil || string(names.text) != "user\x00" {
		t.Errorf("of another one: %+v, %v", names, err)
	}
}

// writerFunc is a function that takes what is written.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// A folder with many names takes little memory: what sandboxd takes, the sandbox has not.
func TestLargeFolders(t *testing.T) {
	const names, each = 5_000, 64 // bytes
	base := image(t)
	since := started(t, base)
	must(t, os.WriteFile(filepath.Join(base, "home/0"), nil, 0o600))
	for i := range names - 1 {
		must(t, os.Link(filepath.Join(base, "home/0"), filepath.Join(base, "home", fmt.Sprint(i+1))))
	}
	var before, now runtime.MemStats
	var most int64
	runtime.GC()
	runtime.ReadMemStats(&before)
	written := 0
	must(t, Write(t.Context(), writerFunc(func() {
		if written++; written%4000 == 1 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, int64(now.HeapAlloc)-int64(before.HeapAlloc))
		}
	}), Tree{Base: base + "/home", Mounts: []Mount{{Path: "/"}}, Since: since}))
	if most > names*each {
		t.Errorf("%d bytes for %d names", most, names)
	}
}

// A lease on a file, which what is stopped cannot give up, does not keep the sandbox still.
func TestLeases(t *testing.T) {
	base := image(t)
	since := started(t, base)
	fd, err := unix.Open(filepath.Join(base, "home/user/leased"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	written := make(chan error, 1)
	go func() { written <- Write(t.Context(), io.Discard, treeOf(base, since)) }()
	select {
	case err := <-written:
		if !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second): // the kernel breaks leases after 45 s
		t.Error("it waits for the lease")
	}
}

// What had holes takes no more room once it is restored.
func TestHoles(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	const size = 8 << 20
	for name, tail := range map[string]string{"hole": "", "tail": "x"} {
		f, err := os.Create(filepath.Join(from, "home", name))
		must(t, err)
		must(t, f.Truncate(size))
		_, err = f.WriteAt([]byte(tail), size-int64(len(tail)))
		must(t, errors.Join(err, f.Close()))
	}
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	must(t, Extract(t.Context(), &data, treeOf(to, since)))
	same(t, seen(t, to), seen(t, from))
	for _, name := range []string{"hole", "tail"} {
		var stat unix.Stat_t
		must(t, unix.Stat(filepath.Join(to, "home", name), &stat))
		if stat.Size != size || stat.Blocks*512 > size/2 {
			t.Errorf("%s has %d bytes in %d blocks", name, stat.Size, stat.Blocks)
		}
	}
}
