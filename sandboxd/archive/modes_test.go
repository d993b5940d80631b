package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Without CAP_FSETID the kernel takes the set-group-ID bit off the mode of what belongs to
// a group that the process is not in, and reports success. A restore does not; and such a
// process keeps nothing of which it could not restore the bit.
func TestSetGroupIDIsNotLostSilently(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another group")
	}
	for name, kind := range map[string]byte{"a folder": tar.TypeDir, "a file": tar.TypeReg, "a FIFO": tar.TypeFifo} {
		t.Run(name, func(t *testing.T) {
			from, to := image(t), image(t)
			since := started(t, from, to)
			at := filepath.Join(from, "home/shared")
			switch kind {
			case tar.TypeDir:
				must(t, os.Mkdir(at, 0o700))
			case tar.TypeReg:
				must(t, os.WriteFile(at, nil, 0o700))
			default:
				must(t, unix.Mkfifo(at, 0o700))
			}
			must(t, errors.Join(os.Chown(at, 0, 12345), unix.Chmod(at, 0o2775)))
			var data bytes.Buffer
			must(t, Write(t.Context(), &data, treeOf(from, since)))
			lacking(t, func() {
				if err := Write(t.Context(), io.Discard, treeOf(from, since)); !errors.Is(err, ErrMode) {
					t.Errorf("it is kept without the capability: %v", err)
				}
				if err := Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)); !errors.Is(err, ErrMode) {
					t.Errorf("it is restored without the capability: %v", err)
				}
			}, unix.CAP_FSETID)
			must(t, Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)))
			same(t, seen(t, to), seen(t, from))
		})
	}
}

// The group's own members need no capability for the bit.
func TestSetGroupIDOfOwnGroup(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	shared := filepath.Join(from, "home/shared")
	must(t, errors.Join(os.Mkdir(shared, 0o700), unix.Chmod(shared, 0o2770)))
	must(t, os.Mkdir(filepath.Join(shared, "inherits"), 0o755))
	lacking(t, func() {
		var data bytes.Buffer
		must(t, Write(t.Context(), &data, treeOf(from, since)))
		must(t, Extract(t.Context(), &data, treeOf(to, since)))
	}, unix.CAP_FSETID)
	same(t, seen(t, to), seen(t, from))
}

// A file's capabilities are kept with it, and a process that could not restore them keeps nothing.
func TestFileCapabilitiesAreNotLost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give a file capabilities")
	}
	from, to := image(t), image(t)
	since := started(t, from, to)
	at := filepath.Join(from, "home/ping")
	must(t, os.WriteFile(at, nil, 0o700))
	caps := []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // cap_net_raw, effective
	must(t, unix.Setxattr(at, xattrCaps, caps, 0))
	lacking(t, func() {
		if err := Write(t.Context(), io.Discard, treeOf(from, since)); !errors.Is(err, ErrFileCaps) {
			t.Errorf("it is kept without the capability: %v", err)
		}
	}, unix.CAP_SETFCAP)
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	must(t, Extract(t.Context(), &data, treeOf(to, since)))
	got := make([]byte, len(caps))
	if n, err := unix.Getxattr(filepath.Join(to, "home/ping"), xattrCaps, got); err != nil || !bytes.Equal(got[:n], caps) {
		t.Errorf("restored is %x, %v", got[:max(n, 0)], err)
	}
}
