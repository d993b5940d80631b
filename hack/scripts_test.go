// Package hack_test tests the scripts of this folder.
package hack_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/hack/kube"
)

// flaky.sh writes a line a run, goes on where it was stopped, and names what failed
// with the seed to run it again.
func TestFlakyGoesOnWhereItWasStopped(t *testing.T) {
	folder := t.TempDir()
	tests := filepath.Join(folder, "bin", "test.ports.test")
	count := filepath.Join(folder, "count")
	// It stands for the package's tests: the third run fails.
	script := "#!/bin/sh\necho x >>" + count + "\n[ $(wc -l <" + count + ") != 3 ] || { echo '--- FAIL: TestX (0.00s)'; exit 1; }\n"
	if err := os.MkdirAll(filepath.Dir(tests), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tests, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(rounds string) (string, []string, error) {
		cmd := exec.CommandContext(t.Context(), "./flaky.sh", "-n", rounds, "-j", "1", "-l", "1", "-d", folder, "./test/ports")
		cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=unused", "ENVOY_BIN=unused")
		out, err := cmd.CombinedOutput()
		lines, _ := os.ReadFile(filepath.Join(folder, "runs.txt")) // an empty one fails below
		return string(out), strings.Split(strings.TrimSpace(string(lines)), "\n"), err
	}
	if out, lines, err := run("2"); err != nil || len(lines) != 2 || !strings.Contains(lines[1], "test/ports ok ") {
		t.Fatalf("two rounds: %v, lines %q\n%s", err, lines, out)
	}
	out, lines, err := run("4")
	if err == nil || len(lines) != 4 || !strings.Contains(lines[2], " FAIL ") {
		t.Fatalf("two rounds more, one of which fails: %v, lines %q\n%s", err, lines, out)
	}
	_, seed, _ := strings.Cut(lines[2], "seed=")
	if !strings.Contains(out, "test/ports: TestX (again: SANDLANE_SEED="+seed+" go test -race -shuffle="+seed) {
		t.Errorf("the failure is not named with its seed:\n%s", out)
	}
	if out, again, err := run("4"); err == nil || len(again) != 4 {
		t.Errorf("nothing was left to run: %v, lines %q\n%s", err, again, out)
	}
}

// folderOf makes a folder with executable scripts.
func folderOf(t *testing.T, scripts map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range scripts {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text, "#!") {
			text = "#!/bin/sh\n" + text
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// All that compiles Kubernetes, or parts of it, does so with the same flags: with others
// the build cache has nothing of it, and it is compiled once more.
func TestFlagsAgree(t *testing.T) {
	flags := kube.GoFlags()
	if !strings.Contains(flags, "-trimpath") {
		t.Fatalf("the flags are %q", flags)
	}
	// It stands for Go: it notes how it was called, and writes the file behind -o.
	tools := folderOf(t, map[string]string{"runc": "", "nft": "", "go": `[ "$1" = build ] || { echo "$*"; exit; }
echo "$GOFLAGS | $CGO_ENABLED | $*" >>"$CALLS"
while [ "$1" != -o ]; do shift; done
cp "$0" "$2"
`})
	calls := filepath.Join(t.TempDir(), "calls")
	node := exec.CommandContext(t.Context(), "node/build.sh")
	node.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+t.TempDir(), "CALLS="+calls)
	if out, err := node.CombinedOutput(); err != nil {
		t.Fatalf("node/build.sh: %v\n%s", err, out)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 8 {
		t.Errorf("only %d programs were built", len(lines))
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, flags+" | 0 | build ") || strings.Contains(line, "-trimpath=false") {
			t.Errorf("node/build.sh builds with %q, want %q", line, flags)
		}
	}
	show := exec.CommandContext(t.Context(), "make", "-C", "..", "--no-print-directory", "--eval=show: ; @echo \"$$GOFLAGS\"", "show")
	show.Env = append(os.Environ(), "MAKELEVEL=0", "GOFLAGS=")
	if out, err := show.CombinedOutput(); err != nil || !strings.Contains(string(out), flags+" ") {
		t.Errorf("make compiles with %q (%v), want %q", out, err, flags)
	}
	image, err := os.ReadFile("image/program.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range strings.Fields(flags) {
		if !strings.Contains(string(image), `"`+flag+`"`) {
			t.Errorf("image/program.go compiles without %s", flag)
		}
	}
}

// make build replaces a sandboxd that runs, and a module that is mapped.
func TestBuildReplacesWhatRuns(t *testing.T) {
	script, err := os.ReadFile("build.sh")
	if err != nil {
		t.Fatal(err)
	}
	folder := folderOf(t, map[string]string{"hack/fastpath.sh": "", "hack/build.sh": string(script), "go": `[ "$1" = build ] || exit 0
while [ "$1" != -o ]; do shift; done
mkdir -p "${2%/*}" && echo new >"$2"
`})
	path := filepath.Join(folder, "bin", "sandboxd")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	running := exec.CommandContext(t.Context(), path, "1000")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = running.Process.Kill()
		_ = running.Wait() // it was killed
	}()
	makefile, err := filepath.Abs("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "make", "-f", makefile, "-C", folder, "GO="+filepath.Join(folder, "go"), "VERSION=x", "build")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("make build: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "new\n" {
		t.Errorf("bin/sandboxd is not the new one: %d bytes, %v", len(text), err)
	}
	if err := running.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the one that ran has ended: %v", err)
	}
}

// A build that fails says why and fails; the names of packages that go build -v prints are
// counted, and not repeated.
func TestBuildOfWhatDoesNotCompile(t *testing.T) {
	folder := folderOf(t, map[string]string{"go": "echo example.com/a/b >&2; echo '# example.com/a' >&2; echo 'x.go:1:1: not Go' >&2; exit 3"})
	build := exec.CommandContext(t.Context(), "./build.sh", "./...")
	build.Env = append(os.Environ(), "GO="+filepath.Join(folder, "go"))
	out, err := build.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "# example.com/a\nx.go:1:1: not Go\n" {
		t.Errorf("%v, %q", err, out)
	}
}
