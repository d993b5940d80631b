package interpreter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The server's own tests run on the locked packages, which the first run fetches.
func TestServer(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	packages, err := Install(t.Context(), Options{Python: python, Progress: func(line string) { t.Log(line) }})
	if errors.Is(err, ErrNoPython) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	modules := t.TempDir()
	if err := Unpack(modules); err != nil {
		t.Fatal(err)
	}
	// Four minutes beside all other tests on two processors.
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "unittest", "discover", "--start-directory", "tests")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+modules+":"+packages, "PYTHONDONTWRITEBYTECODE=1", "HOME="+t.TempDir())
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the server's tests: %v\n%s", err, out)
	}
}

// fakePython is a program that says this version and runs this as its other commands.
func fakePython(t *testing.T, version, other string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = -c ]; then echo %s; exit; fi\n%s\n", version, other)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

func TestInstallSaysWhatIsMissing(t *testing.T) {
	for want, python := range map[string]string{
		"no python3 of this machine": "",
		"does not run":               "/nowhere/python3",
		"3.11 or newer is needed":    fakePython(t, "'3 10'", ""),
		"does not say its version":   fakePython(t, "hello", ""),
	} {
		_, err := Install(t.Context(), Options{Python: python, CacheDir: t.TempDir()})
		if !errors.Is(err, ErrNoPython) || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want ErrNoPython with %q", python, err, want)
		}
	}
}

// What pip could not finish is not taken for an installation by the next.
func TestInstallThatFails(t *testing.T) {
	cache := t.TempDir()
	failing := fakePython(t, "'3 11'", `[ "$3" = --version ] && exit; echo first; echo no network >&2; exit 1`)
	if _, err := Install(t.Context(), Options{Python: failing, CacheDir: cache}); err == nil || !strings.Contains(err.Error(), "no network") {
		t.Errorf("an installation that fails: %v", err)
	}
	marks := `[ "$3" = --version ] && exit; while [ "$1" != --target ]; do shift; done; echo x > "$2/installed"`
	dir, err := Install(t.Context(), Options{Python: fakePython(t, "'3 11'", marks), CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); err != nil {
		t.Error(err)
	}
	again, err := Install(t.Context(), Options{Python: failing, CacheDir: cache})
	if err != nil || again != dir {
		t.Errorf("the second time: %q, %v; want %q from the cache", again, err, dir)
	}
}

// An installation takes the wheels that are there, and nothing from an index.
func TestInstallFromWheels(t *testing.T) {
	cache := t.TempDir()
	notes := `[ "$3" = --version ] && exit; all="$*"; while [ "$1" != --target ] && [ "$1" != --dest ]; do shift; done; echo "$all" > "$2/command"`
	o := Options{Python: fakePython(t, "'3 11'", notes), CacheDir: cache}
	wheels, err := Wheels(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if command, err := os.ReadFile(filepath.Join(wheels, "command")); err != nil || !strings.HasPrefix(string(command), "-m pip download --dest ") {
		t.Errorf("wheels were fetched by %q, %v", command, err)
	}
	dir, err := Install(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	command, err := os.ReadFile(filepath.Join(dir, "command"))
	if err != nil || !strings.Contains(string(command), " --no-index --find-links "+wheels+" ") || !strings.Contains(string(command), " --require-hashes ") {
		t.Errorf("they were installed by %q, %v", command, err)
	}
}

// Python imports no pip from the working directory, which may be another user's.
func TestInstallRunsNoPipOfTheWorkingDirectory(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	ran := filepath.Join(t.TempDir(), "ran")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("pip.py", []byte("open('"+ran+"', 'w')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PIP_NO_INDEX", "1") // nothing is downloaded
	dir, err := Install(t.Context(), Options{Python: python, CacheDir: t.TempDir()})
	if errors.Is(err, ErrNoPython) {
		t.Skip(err)
	}
	if err == nil {
		t.Errorf("Install without an index: %s", dir)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("pip.py of the working directory has run")
	}
}
