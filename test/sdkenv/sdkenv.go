// Package sdkenv installs what lock files say for tests, E2B's SDKs and others, into the
// user's cache. It knows no SDK: the tests name the lock files and run what was installed.
package sdkenv

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandlane/sandlane/conformance/sdk"
)

// Python installs what a lock file of Python says and returns the folder of its programs.
func Python(ctx context.Context, t testing.TB, lock string) string {
	t.Helper()
	bin, err := sdk.Python(ctx, filepath.Base(lock), read(t, lock))
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// Node installs what lock files of npm say and returns the folder that holds node_modules.
func Node(ctx context.Context, t testing.TB, locks ...string) string {
	t.Helper()
	files := map[string][]byte{}
	for _, lock := range locks {
		files[filepath.Base(lock)] = read(t, lock)
	}
	dir, err := sdk.Node(ctx, files)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
