package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Get implements Store.
func (f *Folder) Get(ctx context.Context, id string) (Archive, Info, error) {
	if err := checkID(id); err != nil {
		return nil, Info{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := bounded(ctx, f.calls, func() (*opened, error) { return f.get(id) }, func(a *opened) { _ = a.Close() })
	if err != nil {
		return nil, Info{}, err
	}
	return a, Info{Bytes: a.left, Digest: inHex(digestOf(a.sums))}, nil
}

func (f *Folder) get(id string) (*opened, error) {
	file, err := f.root.Open(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("archive %s: %w", id, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("open archive %s: %w", id, err)
	}
	a, err := open(file)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open archive %s: %w", id, err)
	}
	return a, nil
}

// opened is an archive that is being read. Close may be called at any time.
type opened struct {
	file *os.File
	left int64  // bytes of the archive that are not read from the file yet
	sums []byte // those of the parts that are not read from the file yet

	buf  []byte // of Read; nil before the first one
	rest []byte // what Read has verified and not returned yet; a part of buf
}

func open(file *os.File) (*opened, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	n := lengthOf(info.Size())
	if n < 0 || !info.Mode().IsRegular() {
		return nil, ErrDamaged
	}
	behind := make([]byte, info.Size()-n)
	if _, err := file.ReadAt(behind, n); err != nil {
		return nil, err
	}
	list := behind[:len(behind)-sha256.Size]
	if digestOf(list) != sum(behind[len(list):]) {
		return nil, ErrDamaged
	}
	return &opened{file: file, left: n, sums: list}, nil
}

// Read implements io.Reader.
func (a *opened) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		if a.left == 0 {
			return 0, io.EOF
		}
		if a.buf == nil {
			a.buf = make([]byte, min(PartSize, a.left))
		}
		n, want, err := a.next(a.buf)
		if err == nil && sha256.Sum256(a.buf[:n]) != want {
			err = ErrDamaged
		}
		if err != nil {
			return 0, err
		}
		a.rest = a.buf[:n]
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Part implements Archive.
func (a *opened) Part(buf []byte) (n int, digest sum, last bool, err error) {
	switch {
	case len(a.rest) > 0:
		n = copy(buf, a.rest)
		a.rest = a.rest[n:]
		digest = sha256.Sum256(buf[:n])
	case a.left > 0:
		n, digest, err = a.next(buf)
	default:
		digest = sha256.Sum256(nil)
	}
	return n, digest, len(a.rest) == 0 && a.left == 0, err
}

// next reads the next part from the file. It does not compare it with its digest.
func (a *opened) next(buf []byte) (n int, digest sum, err error) {
	n, err = io.ReadFull(a.file, buf[:min(PartSize, a.left)])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the file has become shorter since it was opened
		err = ErrDamaged
	}
	if err != nil {
		return 0, sum{}, err
	}
	digest = sum(a.sums[:sha256.Size])
	a.left, a.sums = a.left-int64(n), a.sums[sha256.Size:]
	return n, digest, nil
}

// Close implements io.Closer.
func (a *opened) Close() error { return a.file.Close() }
