package sandboxd

import (
	"errors"
	"os"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
)

// On a read-only file system a change is refused, as where the user has no right to it.
func TestReadOnlyFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); errors.Is(err, unix.EPERM) {
		t.Skip("this container may not mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	must(t, os.WriteFile(dir+"/f", nil, 0o644), unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	a := newAgent(t, Options{})
	ctx, fs := t.Context(), a.filesystem
	for _, path := range []string{"/f", "/new", "/d/new"} {
		a.want(403, "read-only", "POST", filesURL(dir+path), "x", "Content-Type", octets)
	}
	_, err := fs.MakeDir(ctx, connect.NewRequest(&filesystempb.MakeDirRequest{Path: dir + "/d"}))
	wantCode(t, "make", err, connect.CodePermissionDenied)
	_, err = fs.Move(ctx, connect.NewRequest(&filesystempb.MoveRequest{Source: dir + "/f", Destination: dir + "/g"}))
	wantCode(t, "move", err, connect.CodePermissionDenied)
	_, err = fs.Remove(ctx, connect.NewRequest(&filesystempb.RemoveRequest{Path: dir + "/f"}))
	wantCode(t, "remove", err, connect.CodePermissionDenied)
}
