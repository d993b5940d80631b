package binaries

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a pretended system: folders, a go that writes what it is asked to
// build, plenty of disk.
type machine struct {
	Options
	assets string
	calls  string // one line per `go build`
}

func newMachine(t *testing.T, goBody string) *machine {
	t.Helper()
	m := &machine{assets: t.TempDir(), calls: filepath.Join(t.TempDir(), "calls")}
	goTool := filepath.Join(t.TempDir(), "go")
	write(t, goTool, `#!/bin/sh
case "$1" in env) echo /; echo /; exit 0 ;; list) exit 0 ;; esac
`+goBody+`
for last; do :; done
echo "$last" >>`+m.calls+`
while [ "$1" != -o ]; do shift; done; echo built >"$2"
`)
	m.Options = Options{
		CacheDir: t.TempDir(),
		Getenv:   func(string) string { return m.assets },
		LookPath: func(string) (string, error) { return goTool, nil },
		Free:     func(string) (uint64, error) { return 100 << 30, nil },
		Module:   func() ([]byte, []byte, string) { return []byte("mod"), []byte("sum"), "v1.2.3" },
	}
	return m
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) built(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(m.calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// Each program is looked up by itself: assets, then cache, then the build.
func TestFindLooksUpOneByOne(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "")
	write(t, filepath.Join(m.assets, Etcd), "x")
	write(t, filepath.Join(m.cache(), APIServer), "x")
	got, err := Find(t.Context(), m.Options, All()...)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		Etcd: m.assets, APIServer: m.cache(), ControllerManager: m.cache(), Kubectl: m.cache(),
	} {
		if got[name] != filepath.Join(want, name) {
			t.Errorf("%s = %q, want it in %s", name, got[name], want)
		}
	}
	if b := m.built(t); b != "k8s.io/kubernetes/cmd/kubectl k8s.io/kubernetes/cmd/kube-controller-manager" {
		t.Errorf("built %q", b)
	}
	if _, err := Find(t.Context(), m.Options, All()...); err != nil || strings.Count(m.built(t), " ") != 1 {
		t.Errorf("a second Find built again: %q, %v", m.built(t), err)
	}
	if left, _ := filepath.Glob(filepath.Join(m.cache(), "build-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestConcurrentFindsBuildOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := Find(t.Context(), m.Options, Etcd); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if b := m.built(t); b != "go.etcd.io/etcd/server/v3" {
		t.Errorf("built %q, want etcd once", b)
	}
}

func TestChangedModuleIsBuiltAnew(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "")
	before := m.cache()
	m.Module = func() ([]byte, []byte, string) { return []byte("mod"), []byte("other"), "v1.2.3" }
	if m.cache() == before {
		t.Errorf("both modules use %s", before)
	}
}

func TestFindSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		goBody string
		change func(*machine)
		want   string
	}{
		"no go":    {"", func(m *machine) { m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound } }, "install Go 1.26"},
		"no space": {"", func(m *machine) { m.Free = func(string) (uint64, error) { return 5 << 30, nil } }, "needs 6 GB of free disk space, / has 5.0 GB"},
		"build":    {`echo "a.go:1: broken" >&2; exit 1`, func(*machine) {}, "a.go:1: broken"},
		"cache":    {"", func(m *machine) { m.CacheDir = "/dev/null" }, "make the cache folder"},
	} {
		m := newMachine(t, tc.goBody)
		tc.change(m)
		_, err := Find(t.Context(), m.Options, Etcd)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, err, tc.want)
		}
	}
}

// Giving up ends the build with all its processes.
func TestCancelEndsTheBuild(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sleep 1000 & wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	m.Progress = func(string) { cancel(errors.New("enough")) }
	if _, err := Find(ctx, m.Options, Etcd); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("Find: %v", err)
	}
}

// What Go prints becomes what a person who waits is told.
func TestOutputSaysHowFarABuildIs(t *testing.T) {
	t.Parallel()
	var o output
	for _, step := range []struct{ printed, want string }{
		{"go: downloading k8s.io/api v1.2.3\n", ", downloading k8s.io/api v1.2.3"},
		{strings.Repeat(staleMark+"\n", 3) + "\n", ", downloading k8s.io/api v1.2.3"}, // an empty line: a package that is up to date
		{"example.com/a\nexample", ", 1 of 3 packages, compiling example.com/a"},
		{".com/b\n", ", 2 of 3 packages, compiling example.com/b"},
		{"# example.com/b\nb.go:1: broken\n", ", 2 of 3 packages, compiling example.com/b"},
	} {
		if _, err := o.Write([]byte(step.printed)); err != nil {
			t.Fatal(err)
		}
		if got := o.now(); got != step.want {
			t.Errorf("after %q: %q, want %q", step.printed, got, step.want)
		}
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "")
	write(t, filepath.Join(m.assets, Etcd), "x")
	dir, err := Assets(t.Context(), m.Options)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range All() {
		if !executable(filepath.Join(dir, name)) {
			t.Errorf("%s lacks %s", dir, name)
		}
	}
	if again, err := Assets(t.Context(), m.Options); err != nil || again != dir {
		t.Errorf("again: %q, %v", again, err)
	}
	m.assets = ""
	if dir, err = Assets(t.Context(), m.Options); err != nil || dir != m.cache() {
		t.Errorf("all in the cache: %q, %v; want %q", dir, err, m.cache())
	}
}

func TestLdflags(t *testing.T) {
	t.Parallel()
	const want = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 " +
		"-X k8s.io/component-base/version.gitMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3"
	if got := ldflags("v1.36.3"); got != want {
		t.Errorf("ldflags = %q", got)
	}
}
