package sdk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/filelock"
)

// Folder makes a folder in the user's cache from lock files, by name, once: its name holds
// their hash and the version of the interpreter. The commands that build returns run in it.
// Several processes may do so at the same time; a lock makes all but one wait, and a folder
// without the mark "complete" is begun anew.
func Folder(ctx context.Context, interpreter string, locks map[string][]byte, build func(dir string) [][]string) (string, error) {
	number, err := command(ctx, "", interpreter, "--version")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, _ = fmt.Fprintln(h, number)
	for _, name := range slices.Sorted(maps.Keys(locks)) {
		_, _ = h.Write(locks[name])
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("the cache of SDKs: %w", err)
	}
	dir := filepath.Join(cache, "sandlane", "e2b", hex.EncodeToString(h.Sum(nil)[:8]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("the cache of SDKs: %w", err)
	}
	unlock, err := filelock.Lock(ctx, dir+".lock", nil)
	if err != nil {
		return "", fmt.Errorf("the cache of SDKs: %w", err)
	}
	defer unlock()
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir, nil
	}
	if err := fill(dir, locks); err != nil {
		return "", fmt.Errorf("the cache of SDKs: %w", err)
	}
	for _, args := range build(dir) {
		if _, err := command(ctx, dir, args...); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		return "", fmt.Errorf("the cache of SDKs: %w", err)
	}
	return dir, nil
}

// Python installs what a lock file says and returns the folder of its programs.
func Python(ctx context.Context, lockName string, text []byte) (string, error) {
	return python(ctx, map[string][]byte{lockName: text}, "--require-hashes", "-r", lockName)
}

func python(ctx context.Context, locks map[string][]byte, what ...string) (string, error) {
	dir, err := Folder(ctx, "python3", locks, func(dir string) [][]string {
		return [][]string{
			{"python3", "-m", "venv", filepath.Join(dir, "venv")},
			append([]string{filepath.Join(dir, "venv", "bin", "pip"), "install", "--quiet", "--disable-pip-version-check"}, what...),
		}
	})
	return filepath.Join(dir, "venv", "bin"), err
}

// Node installs what package.json and package-lock.json say and returns the folder that holds
// node_modules.
func Node(ctx context.Context, locks map[string][]byte) (string, error) {
	return node(ctx, locks, "ci")
}

func node(ctx context.Context, locks map[string][]byte, what ...string) (string, error) {
	return Folder(ctx, "node", locks, func(string) [][]string {
		return [][]string{append(append([]string{"npm"}, what...), "--silent", "--ignore-scripts", "--no-audit", "--no-fund")}
	})
}

// fill begins a folder anew.
func fill(dir string, files map[string][]byte) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
