package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

// Get implements Store.
func (f *Folder) Get(ctx context.Context, id string) (io.ReadCloser, Info, error) {
	if err := checkID(id); err != nil {
		return nil, Info{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := bounded(ctx, f.calls, func() (*opened, error) { return f.get(id) }, func(a *opened) { _ = a.Close() })
	if err != nil {
		return nil, Info{}, err
	}
	return a, Info{Bytes: a.left, Digest: hex.EncodeToString(a.want[:])}, nil
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
	file   *os.File
	left   int64 // bytes of the archive that are not read yet
	digest hash.Hash
	want   [sha256.Size]byte
}

func open(file *os.File) (*opened, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	a := &opened{file: file, left: info.Size() - sha256.Size, digest: sha256.New()}
	if a.left < 0 || !info.Mode().IsRegular() {
		return nil, ErrDamaged
	}
	if _, err := file.ReadAt(a.want[:], a.left); err != nil {
		return nil, err
	}
	return a, nil
}

// Read implements io.Reader.
func (a *opened) Read(p []byte) (int, error) {
	if a.left == 0 {
		if [sha256.Size]byte(a.digest.Sum(nil)) != a.want {
			return 0, ErrDamaged
		}
		return 0, io.EOF
	}
	if int64(len(p)) > a.left {
		p = p[:a.left]
	}
	n, err := a.file.Read(p)
	a.left -= int64(n)
	a.digest.Write(p[:n])
	if errors.Is(err, io.EOF) { // the file has become shorter since it was opened
		err = ErrDamaged
	}
	return n, err
}

// Close implements io.Closer.
func (a *opened) Close() error { return a.file.Close() }
