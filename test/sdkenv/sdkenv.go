// Package sdkenv installs E2B's SDKs for tests, from lock files, into the user's
// cache. It knows no SDK: test/e2b and test/helm name the lock files and run what
// was installed.
package sdkenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Install makes a folder in the user's cache from the lock files, once: its
// name holds their hash and the version of the interpreter. Several test runs
// may do so at the same time; a lock makes all but one wait, and a folder
// without the mark "complete" is begun anew.
func Install(ctx context.Context, t testing.TB, interpreter string, locks []string, build func(dir string) [][]string) string {
	t.Helper()
	version := Command(ctx, t, "", interpreter, "--version")
	h := sha256.New()
	fmt.Fprintln(h, version)
	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "sandlane", "e2b", hex.EncodeToString(h.Sum(nil)[:8]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(lock)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range build(dir) {
		Command(ctx, t, dir, args...)
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Python installs what a lock file of Python says and returns the folder of its
// programs.
func Python(ctx context.Context, t testing.TB, lock string) string {
	t.Helper()
	dir := Install(ctx, t, "python3", []string{lock}, func(dir string) [][]string {
		return [][]string{
			{"python3", "-m", "venv", filepath.Join(dir, "venv")},
			{filepath.Join(dir, "venv", "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", filepath.Base(lock)},
		}
	})
	return filepath.Join(dir, "venv", "bin")
}

// Command runs a program and returns what it printed; its failure is the test's.
func Command(ctx context.Context, t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
