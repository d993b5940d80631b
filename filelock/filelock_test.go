package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A lock is one caller's until it is given back. Who waits says so once, and goes on when its
// context ends.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), file, func() { t.Error("waits for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := 0
	if _, err := Lock(ctx, file, func() { waits++; cancel(stop) }); !errors.Is(err, stop) || waits != 1 {
		t.Errorf("a held lock: %v, %d times said to wait", err, waits)
	}
	locked := make(chan func())
	go func() {
		next, err := Lock(t.Context(), file, unlock) // gives the first one back
		if err != nil {
			t.Error(err)
		}
		locked <- next
	}()
	if next := <-locked; next != nil {
		next()
	}
}

// A lock's file is not what another user has put there as a link.
func TestLockFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	other, file := filepath.Join(dir, "other"), filepath.Join(dir, "lock")
	if err := os.Symlink(other, file); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), file, nil); err == nil {
		t.Error("locked by a link")
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made the link's target: %v", err)
	}
}
