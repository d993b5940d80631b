package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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

// What is too much for a restore is not kept.
func TestNamesAreBounded(t *testing.T) {
	a := &writer{tar: tar.NewWriter(io.Discard), names: maxNames - 4}
	if err := a.writeNames("/home", []string{"five5"}); !errors.Is(err, ErrNames) {
		t.Errorf("%v", err)
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
