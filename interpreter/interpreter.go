// Package interpreter is the code interpreter of sandboxes: a server in Python, which runs
// inside a sandbox and speaks what E2B's e2b-code-interpreter SDKs send to port 49999.
//
//	dir, err := interpreter.Install(ctx, interpreter.Options{Python: "/usr/bin/python3"})
//
// The folder sandlane_interpreter has the server, tests its tests, requirements.lock the
// packages that it and its users' code run on, each with its hash. This package carries both
// and installs them for the local cluster, which shows them to its pods read-only;
// docs/images.md has an image for clusters. It starts nothing: sandboxd starts the server.
package interpreter

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/filelock"
)

const (
	// Port is where the SDKs look for the interpreter.
	Port = 49999
	// Module is what `python3 -m` runs.
	Module = "sandlane_interpreter"
	// oldestMinor is the oldest supported minor version of Python 3: that of the locked
	// packages.
	oldestMinor = 11
)

//go:embed requirements.lock sandlane_interpreter/*.py
var files embed.FS

// ErrNoPython is returned by Install if there is no Python that can run the interpreter. Its
// text says what is missing.
var ErrNoPython = errors.New("no Python for the code interpreter")

// Options of Install.
type Options struct {
	// Python is the interpreter that sandboxes have, as a path on this machine.
	Python string
	// CacheDir keeps installed packages; default the user's cache folder.
	CacheDir string
	// Progress is called with a line for each step that takes long; nil: not called.
	Progress func(line string)
}

// Install returns the folder of the packages in requirements.lock, installed for a version of
// Python: the first time by pip, which fetches some 200 MB; then it is in the cache. It is
// safe for concurrent use, also by several processes: a lock lets one install. Only the
// versions and hashes of the lock file are accepted, and no package is built.
func Install(ctx context.Context, o Options) (string, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder for the code interpreter's packages (set $HOME or $XDG_CACHE_HOME): %w", err)
		}
		o.CacheDir = filepath.Join(dir, "sandlane")
	}
	version, err := versionOf(ctx, o.Python)
	if err != nil {
		return "", err
	}
	lock, err := files.ReadFile("requirements.lock")
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(append(lock, version...))
	dir := filepath.Join(o.CacheDir, "interpreter", "python"+version+"-"+hex.EncodeToString(hash[:8]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache of the code interpreter: %w", err)
	}
	unlock, err := filelock.Lock(ctx, dir+".lock", nil)
	if err != nil {
		return "", fmt.Errorf("lock the cache of the code interpreter: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	o.Progress("installing the packages of the code interpreter, about 200 MB, once; everything else goes on meanwhile")
	// pip writes beside the folder, which so is complete or not there.
	unfinished := dir + ".new"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o755)); err != nil {
		return "", fmt.Errorf("make the cache of the code interpreter: %w", err)
	}
	if err := pip(ctx, o.Python, unfinished, lock); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", fmt.Errorf("make the cache of the code interpreter: %w", err)
	}
	return dir, nil
}

// Unpack writes the server's modules below dir, which then is a folder for PYTHONPATH.
func Unpack(dir string) error {
	sources, err := fs.Sub(files, Module)
	if err != nil {
		return err
	}
	into := filepath.Join(dir, Module)
	if err := os.RemoveAll(into); err != nil {
		return fmt.Errorf("unpack the code interpreter: %w", err)
	}
	if err := os.CopyFS(into, sources); err != nil {
		return fmt.Errorf("unpack the code interpreter: %w", err)
	}
	return nil
}

// versionOf returns the version of a Python as "3.11".
func versionOf(ctx context.Context, python string) (string, error) {
	if python == "" {
		return "", fmt.Errorf("%w: sandboxes see no python3 of this machine in /usr", ErrNoPython)
	}
	out, err := exec.CommandContext(ctx, python, "-c", "import sys; print('%d %d' % sys.version_info[:2])").Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s does not run: %w", ErrNoPython, python, err)
	}
	var major, minor int
	if _, err := fmt.Sscan(string(out), &major, &minor); err != nil {
		return "", fmt.Errorf("%w: %s does not say its version: %w", ErrNoPython, python, err)
	}
	if major != 3 || minor < oldestMinor {
		return "", fmt.Errorf("%w: %s is Python %d.%d, and 3.%d or newer is needed", ErrNoPython, python, major, minor, oldestMinor)
	}
	return fmt.Sprintf("%d.%d", major, minor), nil
}

// pip installs the locked packages into a folder, for a Python that may have no pip itself.
func pip(ctx context.Context, python, dir string, lock []byte) error {
	command := []string{python, "-m", "pip"}
	// `python3 -m` imports from the working directory first, which may be another user's. The
	// cache has no modules but below dir, which pip fills meanwhile.
	workingDir := filepath.Dir(dir)
	probe := exec.CommandContext(ctx, python, "-m", "pip", "--version")
	probe.Dir = workingDir
	if probe.Run() != nil {
		command = []string{"python3", "-m", "pip", "--python", python}
	}
	requirements := dir + ".txt"
	if err := os.WriteFile(requirements, lock, 0o600); err != nil {
		return fmt.Errorf("install the code interpreter's packages: %w", err)
	}
	defer func() { _ = os.Remove(requirements) }()
	args := slices.Concat(command[1:], []string{"install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-warn-conflicts",
		"--root-user-action", "ignore", "--only-binary", ":all:", "--require-hashes", "--target", dir, "--requirement", requirements})
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.Dir = workingDir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("install the code interpreter's packages by pip: %w: %s", err, lastLine(string(out)))
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
