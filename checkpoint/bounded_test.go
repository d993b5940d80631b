package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file system that hangs holds no caller for longer than its context: a FIFO does, for
// as long as nothing writes to it.
func TestAFileSystemThatHangs(t *testing.T) {
	f, path := newFolder(t)
	fifo := filepath.Join(path, "hangs")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	hung := make(chan error, maxCalls)
	for range maxCalls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, _, err := f.Get(ctx, "hangs")
			hung <- err
		}()
	}
	late := time.After(20 * time.Second)
	for range maxCalls {
		select {
		case err := <-hung:
			if !errors.Is(err, ErrStuck) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Get: %v", err)
			}
		case <-late:
			unblock(t, fifo)
			t.Fatal("a Get has outlived its context")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, listErr := f.List(ctx)
	for what, err := range map[string]error{"Delete": f.Delete(ctx, "other"), "List": listErr, "Sweep": f.Sweep(ctx)} {
		if !errors.Is(err, ErrStuck) {
			t.Errorf("%s, when as many calls hang as may: %v", what, err)
		}
	}
	if _, err := f.Put(t.Context(), "other", strings.NewReader("x")); err != nil {
		t.Errorf("Put: %v", err)
	}
	unblock(t, fifo)
	if err := f.Delete(t.Context(), "other"); err != nil { // it waits for the others
		t.Error(err)
	}
	if _, _, err := get(f, "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("when nothing hangs any more: %v", err)
	}
}

// A Put whose reader hangs ends with its context.
func TestAPutThatHangs(t *testing.T) {
	f, _ := newFolder(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close(); _ = w.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Put(ctx, "id", r); !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
}

// unblock lets the calls go on that hang at a FIFO: each finds that it is no archive.
func unblock(t *testing.T, fifo string) {
	t.Helper()
	w, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
}
