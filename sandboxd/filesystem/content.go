package filesystem

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copyPiece is how many bytes are copied between two checks of the context.
const copyPiece = 64 << 20

// copyContent copies the content of a file, and leaves holes where it has holes.
func copyContent(ctx context.Context, from, to *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // nothing but a hole
		}
		end := info.Size()
		if err != nil {
			data = at // a file system that does not tell where holes are
		} else if hole, err := from.Seek(data, unix.SEEK_HOLE); err == nil {
			end = hole
		}
		if at, err = copyRange(ctx, from, to, data, end); err != nil {
			return err
		}
	}
	return to.Truncate(info.Size()) // which may end with a hole
}

// copyRange copies from one offset to another, or to the end of the file, and returns
// where it ended, which is not before end.
func copyRange(ctx context.Context, from, to *os.File, at, end int64) (int64, error) {
	_, err := from.Seek(at, io.SeekStart)
	if err == nil {
		_, err = to.Seek(at, io.SeekStart)
	}
	for err == nil && at < end {
		if err = ctx.Err(); err != nil {
			break
		}
		var n int64
		n, err = io.CopyN(to, from, min(copyPiece, end-at)) // copy_file_range where the kernel can
		at += n
	}
	if errors.Is(err, io.EOF) { // it has become shorter
		return end, nil
	}
	return at, err
}

// copyAttributes copies extended attributes. It fails if those of users (user.*, metadata
// among them) do not fit; it leaves out others that the destination's file system, or the
// kernel for this thread, does not accept.
func copyAttributes(from, to *os.File) error {
	source, target := int(from.Fd()), int(to.Fd())
	list := readXattr(func(buf []byte) (int, error) { return unix.Flistxattr(source, buf) })
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := readXattr(func(buf []byte) (int, error) { return unix.Fgetxattr(source, name, buf) })
		err := unix.Fsetxattr(target, name, value, 0)
		if err != nil && strings.HasPrefix(name, "user.") && !errors.Is(err, unix.ENOTSUP) {
			return &os.PathError{Op: "setxattr " + name, Path: to.Name(), Err: err}
		}
	}
	return nil
}
