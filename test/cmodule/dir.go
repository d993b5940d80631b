package cmodule

import (
	"os"
	"testing"
)

var folder string

// dir is a folder of this process: its programs outlive the test that built them.
func dir(t testing.TB) string {
	t.Helper()
	if folder == "" {
		var err error
		if folder, err = os.MkdirTemp("", "cmodule-"); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// Folder makes a folder on tmpfs, which is removed when the test ends. The test is
// skipped where there is none.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sandlane-test-")
	if err != nil {
		t.Skipf("no folder on tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Remove removes the programs. TestMain calls it.
func Remove() {
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
}
