package sdk

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// Who waits for another process that installs stops with its context, and gets the lock when
// that one is done.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lock(short, file); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the lock of another: %v", err)
	}
	unlock()
	unlock, err = lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
