package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testMax = 3 << 20

func newFolder(t *testing.T) (f *Folder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "made", "checkpoints")
	f, err := OpenFolder(path, testMax)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, path
}

func get(f *Folder, id string) ([]byte, Info, error) {
	r, info, err := f.Get(context.Background(), id)
	if err != nil {
		return nil, Info{}, err
	}
	data, err := io.ReadAll(r)
	return data, info, errors.Join(err, r.Close())
}

// names are the files in a folder.
func names(t *testing.T, path string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestFolder(t *testing.T) {
	f, path := newFolder(t)
	for _, data := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("s"), PartSize), bytes.Repeat([]byte("sandbox"), 400_000)} {
		id := fmt.Sprintf("%08x-uid", len(data))
		put, err := f.Put(t.Context(), id, iotest.HalfReader(bytes.NewReader(data)))
		if err != nil {
			t.Fatal(err)
		}
		var list []byte
		for part := range slices.Chunk(data, PartSize) {
			sum := sha256.Sum256(part)
			list = append(list, sum[:]...)
		}
		sum := sha256.Sum256(list)
		if want := (Info{int64(len(data)), hex.EncodeToString(sum[:])}); put != want {
			t.Errorf("Put says %+v, want %+v", put, want)
		}
		got, info, err := get(f, id)
		if err != nil || info != put || !bytes.Equal(got, data) {
			t.Errorf("Get of %d bytes: %d bytes, %+v, %v", len(data), len(got), info, err)
		}
		stat, err := os.Stat(filepath.Join(path, id))
		if err != nil || stat.Mode() != 0o600 {
			t.Errorf("%v, %v: want a regular file of mode 0600", stat.Mode(), err)
		}
	}
	all, err := f.List(t.Context())
	if err != nil || len(all) != 4 || time.Since(all[0].At) > time.Minute {
		t.Errorf("List: %+v, %v", all, err)
	}
	for _, e := range all {
		for range 2 { // the second time it is gone already
			if err := f.Delete(t.Context(), e.ID); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := get(f, e.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get of a deleted one: %v", err)
		}
	}
	if left := names(t, path); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", stat.Mode(), err)
	}
}

// A Put that fails leaves an earlier archive as it was, and no file of its own.
func TestFolderKeepsNothingOfAFailedPut(t *testing.T) {
	f, path := newFolder(t)
	if _, err := f.Put(t.Context(), "id", strings.NewReader("first")); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the sandbox is gone")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		r    io.Reader
		want error
	}{
		{"a reader that fails", t.Context(), io.MultiReader(strings.NewReader("second"), iotest.ErrReader(cause)), cause},
		{"too large", t.Context(), io.LimitReader(zeros{}, testMax+1), ErrTooLarge},
		// As a write to a disk without room fails.
		{"full", t.Context(), iotest.ErrReader(&os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}), ErrFull},
		{"over its quota", t.Context(), iotest.ErrReader(unix.EDQUOT), ErrFull},
		{"given up", canceled, strings.NewReader("second"), context.Canceled},
	} {
		if _, err := f.Put(tc.ctx, "id", tc.r); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if data, _, err := get(f, "id"); err != nil || string(data) != "first" {
			t.Errorf("%s: %q, %v", tc.name, data, err)
		}
		if left := names(t, path); len(left) != 1 {
			t.Errorf("%s: left %v", tc.name, left)
		}
	}
	if info, err := f.Put(t.Context(), "id", io.LimitReader(zeros{}, testMax)); err != nil || info.Bytes != testMax {
		t.Errorf("as much as is allowed: %+v, %v", info, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// parts reads an archive in parts, of which the first ones may have been begun by Read, and
// compares them.
func parts(f *Folder, id string, begin int64) (all []byte, sizes []int, err error) {
	a, info, err := f.Get(context.Background(), id)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if all, err = io.ReadAll(io.LimitReader(a, begin)); err != nil {
		return all, nil, err
	}
	for buf := make([]byte, PartSize); ; {
		n, digest, last, err := a.Part(buf)
		switch {
		case err != nil:
			return all, sizes, err
		case sha256.Sum256(buf[:n]) != digest:
			return all, sizes, ErrDamaged
		}
		all, sizes = append(all, buf[:n]...), append(sizes, n)
		if last && int64(len(all)) != info.Bytes {
			return all, sizes, errors.New("it is not the last part")
		}
		if last {
			return all, sizes, nil
		}
	}
}

func TestParts(t *testing.T) {
	f, _ := newFolder(t)
	long := make([]byte, 2*PartSize+7)
	for i := range long {
		long[i] = byte(i / 1000)
	}
	for _, tc := range []struct {
		data  []byte
		begin int64
		want  []int
	}{
		{nil, 0, []int{0}},
		{[]byte("abc"), 0, []int{3}},
		{[]byte("abc"), 2, []int{1}},
		{[]byte("abc"), 3, []int{0}},
		{long[:2*PartSize], 0, []int{PartSize, PartSize}},
		{long[:2*PartSize], PartSize, []int{PartSize}},
		{long, 0, []int{PartSize, PartSize, 7}},
		{long, 5, []int{PartSize - 5, PartSize, 7}},
		{long, PartSize + 1, []int{PartSize - 1, 7}},
	} {
		if _, err := f.Put(t.Context(), "id", bytes.NewReader(tc.data)); err != nil {
			t.Fatal(err)
		}
		got, sizes, err := parts(f, "id", tc.begin)
		if err != nil || !slices.Equal(sizes, tc.want) || !bytes.Equal(got, tc.data) {
			t.Errorf("%d bytes from %d on: %d bytes in parts of %v, %v; want %v", len(tc.data), tc.begin, len(got), sizes, err, tc.want)
		}
	}
}

// No file has the size of two archives' files.
func TestLengths(t *testing.T) {
	last := int64(-1)
	for _, n := range []int64{0, 1, 31, 32, 33, PartSize - 33, PartSize - 1, PartSize, PartSize + 1, PartSize + 33, 2*PartSize - 1, 2 * PartSize, 2*PartSize + 1, 1 << 40, 1<<40 + 1} {
		file := n + partsOf(n)*sha256.Size + sha256.Size
		if got := lengthOf(file); got != n || file <= last {
			t.Errorf("the archive in %d bytes has %d, want %d", file, got, n)
		}
		last = file
	}
	for _, file := range []int64{0, 31, 33, 64, 2*32 + PartSize + 1, 2*32 + PartSize + 32} {
		if got := lengthOf(file); got >= 0 {
			t.Errorf("a file of %d bytes has an archive of %d", file, got)
		}
	}
}

// Reading an archive that the disk has changed fails before io.EOF, and no byte of a part
// that has changed is returned.
func TestFolderTellsDamage(t *testing.T) {
	f, path := newFolder(t)
	data := bytes.Repeat([]byte("what was put"), PartSize/10)
	for _, tc := range []struct {
		name   string
		right  int // so many bytes are
		change func(whole []byte) []byte
	}{
		{"a bit", 0, func(w []byte) []byte { w[3] ^= 1; return w }},
		{"a bit of the second part", PartSize, func(w []byte) []byte { w[PartSize+3] ^= 1; return w }},
		{"a bit of the list", 0, func(w []byte) []byte { w[len(data)+1] ^= 1; return w }},
		{"a bit of the digest", 0, func(w []byte) []byte { w[len(w)-1] ^= 1; return w }},
		{"a byte less", 0, func(w []byte) []byte { return w[:len(w)-1] }},
		{"a byte more", 0, func(w []byte) []byte { return append(w, 0) }},
		{"a part less", 0, func(w []byte) []byte { return w[PartSize:] }},
		{"parts in another order", 0, func(w []byte) []byte {
			return slices.Concat(w[PartSize:len(data)], w[:PartSize], w[len(data)+32:len(data)+64], w[len(data):len(data)+32], w[len(w)-32:])
		}},
		{"less than a digest", 0, func(w []byte) []byte { return w[:7] }},
		{"nothing", 0, func([]byte) []byte { return nil }},
	} {
		if _, err := f.Put(t.Context(), "id", bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "id")
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, tc.change(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := get(f, "id"); !errors.Is(err, ErrDamaged) || !bytes.Equal(got, data[:tc.right]) {
			t.Errorf("%s: %d bytes, %v", tc.name, len(got), err)
		}
		if got, _, err := parts(f, "id", 0); !errors.Is(err, ErrDamaged) || !bytes.Equal(got, data[:tc.right]) {
			t.Errorf("%s, in parts: %d bytes, %v", tc.name, len(got), err)
		}
	}
}

// An archive that gets shorter while it is open ends with no part.
func TestFolderTellsAShorterFile(t *testing.T) {
	f, path := newFolder(t)
	if _, err := f.Put(t.Context(), "id", io.LimitReader(zeros{}, 2*PartSize)); err != nil {
		t.Fatal(err)
	}
	a, _, err := f.Get(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if err := os.Truncate(filepath.Join(path, "id"), PartSize+1); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(a); !errors.Is(err, ErrDamaged) || len(got) != PartSize {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A sweep removes what dead writers have left, and neither archives nor those being written.
func TestSweep(t *testing.T) {
	f, path := newFolder(t)
	if _, err := f.Put(t.Context(), "id", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * partialPatience)
	for name, at := range map[string]time.Time{"id": long, partialPrefix + "old": long, partialPrefix + "new": time.Now(), "Notes.txt": long} {
		file := filepath.Join(path, name)
		if name != "id" {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(names(t, path)); got != "["+partialPrefix+"new Notes.txt id]" {
		t.Errorf("left: %s", got)
	}
	if all, err := f.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != "id" {
		t.Errorf("List: %+v, %v", all, err)
	}
}

// FuzzNames: no ID makes a Store touch files outside of its folder.
func FuzzNames(f *testing.F) {
	for _, id := range []string{"0a1b-2c", "", ".", "..", "../x", "/etc/passwd", "a/b", "a\x00", partialPrefix + "x", "A", "-a", "a-", strings.Repeat("a", 64), "a\n"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		folder, path := newFolder(t)
		outside := filepath.Dir(path)
		_, err := folder.Put(t.Context(), id, strings.NewReader("x"))
		_, _, getErr := get(folder, id)
		if valid := idPattern.MatchString(id); valid != (err == nil) || valid != (getErr == nil) {
			t.Errorf("%q: Put %v, Get %v", id, err, getErr)
		}
		if err != nil && !errors.Is(err, ErrInvalidID) {
			t.Errorf("%q: %v", id, err)
		}
		if err == nil && fmt.Sprint(names(t, path)) != "["+id+"]" {
			t.Errorf("%q: the folder has %v", id, names(t, path))
		}
		if got := names(t, outside); len(got) != 1 {
			t.Errorf("%q: beside the folder: %v", id, got)
		}
		if err := folder.Delete(t.Context(), id); (err == nil) != idPattern.MatchString(id) {
			t.Errorf("%q: Delete %v", id, err)
		}
	})
}
