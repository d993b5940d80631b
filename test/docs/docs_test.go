package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/checkout"
	"github.com/sandlane/sandlane/test/pages"
	"github.com/sandlane/sandlane/test/sdkenv"
	"github.com/sandlane/sandlane/test/stack"
)

// shared is the stack that all pages run on.
var shared *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, func(s *stack.Stack) error { shared = s; return nil },
		"--isolation", "full", "--pool-size", "2", "--base-pool-size", "2", "--interpreter-pool-size", "1"))
}

// before is what a page takes for granted, beside a stack.
var before = map[string]string{
	"README.md":          "export E2B_API_KEY=e2b_… E2B_API_URL=http://127.0.0.1:8080 E2B_SANDBOX_URL=http://127.0.0.1:8080",
	"docs/operations.md": "kubectl create namespace team-a",
}

// Each command of each page does what it is there for: it succeeds.
func TestCommands(t *testing.T) {
	lock := checkout.Path(t, "test", "e2b", "python", "e2b-code-interpreter-2.11.5.lock")
	python := filepath.Join(sdkenv.Python(t.Context(), t, lock), "python3")
	shared.Eventually(t, 5*time.Minute, "a warm pod of the code interpreter", func() (bool, string) {
		pool := &v1alpha1.SandboxPool{}
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "code-interpreter-v1"}, pool)
		return err == nil && pool.Status.Idle > 0, fmt.Sprint(err, pool.Status)
	})
	here := strings.NewReplacer("http://127.0.0.1:8080", shared.Up.GatewayURL, "e2b_…", shared.Up.APIKey)
	for _, page := range pages.OfUsers(t) {
		script := ""
		files := map[string]string{}
		for _, b := range pages.Blocks(t, page) {
			switch {
			case b.Language == "yaml" && b.Where != "":
				files[b.Where] = b.Text
			case b.Where != pages.Up:
			case b.Language == "python":
				script += fmt.Sprintf("echo '== line %d'\npython3 - <<'PY'\n%sPY\n", b.Line, b.Text)
			default:
				script += fmt.Sprintf("echo '== line %d'\n%s", b.Line, b.Text)
			}
		}
		if script == "" {
			continue
		}
		t.Run(page, func(t *testing.T) {
			dir := folder(t, python)
			files["commands"] = here.Replace("set -euo pipefail\n" + before[page] + "\n" + script)
			for name, text := range files {
				write(t, filepath.Join(dir, name), text)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "commands")
			cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// folder makes the folder that a page's commands run in: bin/sandlane finds the stack as a
// user's does, kubectl is the one that comes with it, curl fails on errors of HTTP, and
// python3 has E2B's SDKs.
func folder(t *testing.T, python string) string {
	t.Helper()
	dir := t.TempDir()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"bin/sandlane": shared.Bin, "state/sandlane": shared.State} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "bin", "kubectl"), "#!/bin/sh\nexec sandlane kubectl \"$@\"\n")
	write(t, filepath.Join(dir, "bin", "curl"), "#!/bin/sh\nexec "+curl+" --fail-with-body \"$@\"\n")
	for _, name := range []string{"python", "python3"} {
		// A library of the SDK aborts some interpreters as they end (docs/e2b.md).
		write(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n"+python+" \"$@\"\ncode=$?\n[ $code = 134 ] || exit $code\n")
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil { //nolint:gosec // some are programs
		t.Fatal(err)
	}
}
