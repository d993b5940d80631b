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
// Python: the first time by pip, which fetches some 200 MB unless Wheels did; then it is in
// the cache. It is safe for concurrent use, also by several processes: a lock lets one
// install. Only the versions and hashes of the lock file are accepted, and no package is built.
func Install(ctx context.Context, o Options) (string, error) {
	return o.make(ctx, "", "installing the packages of the code interpreter, about 200 MB, once; everything else goes on meanwhile",
		func(dir, into string, lock []byte) error {
			args := []string{"install", "--no-warn-conflicts", "--root-user-action", "ignore", "--target", into}
			if wheels := dir + wheelsSuffix; exists(wheels) {
				args = append(args, "--no-index", "--find-links", wheels)
			}
			return pip(ctx, o.Python, into, lock, args...)
		})
}

// wheelsSuffix ends the name of the folder of wheels of an installation.
const wheelsSuffix = ".wheels"

// Wheels returns the folder of wheels of which Install installs without a network: pip fetches
// them the first time. Otherwise it is as Install.
func Wheels(ctx context.Context, o Options) (string, error) {
	return o.make(ctx, wheelsSuffix, "downloading the packages of the code interpreter, about 200 MB",
		func(_, into string, lock []byte) error {
			return pip(ctx, o.Python, into, lock, "download", "--dest", into)
		})
}

// make returns a folder of the cache for the lock file and a version of Python, whose name ends
// with suffix. fill makes its content the first time; dir is the name without the suffix.
func (o *Options) make(ctx context.Context, suffix, says string, fill func(dir, into string, lock []byte) error) (string, error) {
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
	made := dir + suffix
	if exists(made) {
		return made, nil
	}
	o.Progress(says)
	// pip writes beside the folder, which so is complete or not there.
	unfinished := made + ".new"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o755)); err != nil {
		return "", fmt.Errorf("make the cache of the code interpreter: %w", err)
	}
	if err := fill(dir, unfinished, lock); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := os.Rename(unfinished, made); err != nil {
		return "", fmt.Errorf("make the cache of the code interpreter: %w", err)
	}
	return made, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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

// pip runs a command of pip's on the locked packages, beside dir, for a Python that may have no
// pip itself.
func pip(ctx context.Context, python, dir string, lock []byte, args ...string) error {
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
	all := slices.Concat(command[1:], args, []string{"--quiet", "--disable-pip-version-check", "--no-input",
		"--only-binary", ":all:", "--require-hashes", "--requirement", requirements})
	cmd := exec.CommandContext(ctx, command[0], all...)
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
