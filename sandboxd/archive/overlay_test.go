package archive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// overlaid mounts overlayfs with the files of one image at two folders, as two containers
// of it have them, for the calling test alone.
func overlaid(t *testing.T, options string) (from, to string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	lower, dir := image(t), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(lower, "usr/local/bin"), 0o755))
	must(t, os.MkdirAll(filepath.Join(lower, "usr/lib"), 0o755))
	for i := range 100 {
		must(t, os.WriteFile(filepath.Join(lower, "usr/lib", fmt.Sprint(i)), []byte("image"), 0o644))
	}
	must(t, os.Lchown(filepath.Join(lower, "usr/lib/7"), 1000, 1000))
	must(t, errors.Join(os.Lchown(filepath.Join(lower, "usr/local"), 0, 50), unix.Chmod(filepath.Join(lower, "usr/local"), 0o2775))) // as Debian has it
	runtime.LockOSThread()                                                                                                           // for good: the thread has mounts of its own, and ends with the test
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Skipf("no mounts can be made here: %v", err)
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "")) // overlayfs takes no layer on overlayfs
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	var bases []string
	for _, name := range []string{"from", "to"} {
		upper, work, base := filepath.Join(dir, name+".upper"), filepath.Join(dir, name+".work"), filepath.Join(dir, name)
		must(t, errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755), os.Mkdir(base, 0o755)))
		if err := unix.Mount("overlay", base, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+",workdir="+work+options); err != nil {
			t.Skipf("overlayfs cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { must(t, unix.Unmount(base, unix.MNT_DETACH)) })
		bases = append(bases, base)
	}
	return bases[0], bases[1]
}

// restored archives one container's files and restores them in the other one.
func restored(t *testing.T, from, to string, since time.Time) (names []string) {
	t.Helper()
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	names = list(t, data.Bytes())
	must(t, Extract(t.Context(), &data, treeOf(to, since)))
	same(t, seen(t, to), seen(t, from))
	return names
}

// Of a folder that overlayfs copied for one file in it only that file is kept: neither the
// image's other files, nor does it matter whose those are.
func TestOverlayKeepsOneFile(t *testing.T) {
	from, to := overlaid(t, ",redirect_dir=nofollow,metacopy=off")
	since := started(t, from, to)
	must(t, os.WriteFile(filepath.Join(from, "usr/local/bin/x"), []byte("new"), 0o755))
	var names []string
	lacking(t, func() { names = restored(t, from, to, since) }, asUser...)
	const want = ". usr usr/local usr/local/bin usr/local/bin/x data ."
	if got := strings.Join(slices.Compact(names), " "); got != want {
		t.Errorf("the archive has %s, want %s", got, want)
	}
}

// A folder that was made in the container and then moved is kept whole, with files in it
// that are older than the start of sandboxd.
func TestOverlayMoves(t *testing.T) {
	from, to := overlaid(t, ",redirect_dir=nofollow,metacopy=off")
	in := func(name string) string { return filepath.Join(from, name) }
	must(t, os.MkdirAll(in("opt/made/sub"), 0o755))
	must(t, os.WriteFile(in("opt/made/sub/early"), []byte("by the entrypoint"), 0o644))
	since := started(t, from, to)
	if err := os.Rename(in("usr/lib"), in("usr/moved")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("a folder of the image was moved: %v", err)
	}
	must(t, os.Rename(in("opt/made"), in("usr/made")))
	must(t, os.Rename(in("usr/lib/1"), in("usr/made/1"))) // a file of the image can be moved
	must(t, os.Remove(in("usr/lib/2")))
	must(t, os.RemoveAll(in("opt/tool")))
	must(t, os.Mkdir(in("opt/tool"), 0o755)) // another folder in the place of the image's
	names := restored(t, from, to, since)
	if !slices.Contains(names, "usr/made/sub/early") || slices.Contains(names, "usr/lib/3") {
		t.Errorf("the archive has %q", names)
	}
}

// Where folders of the image can be moved, they are kept with what is in them.
func TestOverlayWithRedirects(t *testing.T) {
	from, to := overlaid(t, ",redirect_dir=on")
	since := started(t, from, to)
	must(t, os.Rename(filepath.Join(from, "usr/lib"), filepath.Join(from, "usr/moved")))
	if names := restored(t, from, to, since); !slices.Contains(names, "usr/moved/99") {
		t.Errorf("the archive has %q", names)
	}
}

// The options of a mount count, and the kernel's defaults for those that are not shown.
func TestOverlayOptions(t *testing.T) {
	for _, tc := range []struct {
		options, redirects, metacopies string
		want                           bool
	}{
		{"rw,lowerdir=/a,upperdir=/b", "N", "N", false},
		{"rw,lowerdir=/a,redirect_dir=on", "N", "N", true},
		{"rw,lowerdir=/a", "Y", "N", true},
		{"rw,lowerdir=/a,redirect_dir=nofollow", "Y", "N", false},
		{"rw,lowerdir=/a,redirect_dir=off,metacopy=off", "Y", "Y", false},
		{"rw,lowerdir=/a,metacopy=on", "N", "N", true},
		{"rw,lowerdir=/a", "N", "Y", true},
		{"rw,lowerdir=/a", "", "N", true}, // it cannot be read
		{"rw,lowerdir=/a", "N", "", true},
	} {
		mountinfo := "1 0 8:1 / / rw - ext4 /dev/a rw\n" +
			"2 1 0:316 / /x rw - overlay overlay rw,redirect_dir=on\n" +
			"3 1 0:317 / /y rw,relatime shared:1 master:2 - overlay overlay " + tc.options + "\n"
		if got := movesFolders(mountinfo, unix.Mkdev(0, 317), tc.redirects+"\n", tc.metacopies+"\n"); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	if !movesFolders("1 0 8:1 / / rw - ext4 /dev/a rw\n", unix.Mkdev(8, 1), "N", "N") {
		t.Error("a mount that is not found")
	}
}
