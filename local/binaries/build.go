package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/filelock"
	"github.com/sandlane/sandlane/hack/kube"
)

// minFree is what modules (0.9 GB), build cache (3 GB), temporary files and
// binaries take at most, with room to spare.
const minFree = 6 << 30

// reportEvery is how often a long build says that it is still at work.
const reportEvery = 10 * time.Second

// build makes the named programs in the cache folder.
func build(ctx context.Context, o *Options, names []string) (map[string]string, error) {
	goTool, err := o.LookPath("go")
	if err != nil {
		return nil, fmt.Errorf("%s must be built, and Go is not on PATH: install Go 1.26 or newer, or set $KUBEBUILDER_ASSETS to a folder that has it",
			strings.Join(names, ", "))
	}
	cache := o.cache()
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder for Kubernetes binaries: %w", err)
	}
	unlock, err := filelock.Lock(ctx, filepath.Join(cache, "lock"), func() {
		o.Progress("waiting for another sandlane that builds the Kubernetes binaries")
	})
	if err != nil {
		return nil, fmt.Errorf("lock the cache of Kubernetes binaries: %w", err)
	}
	defer unlock()
	if err := checkDisk(ctx, o, goTool, cache); err != nil {
		return nil, err
	}
	module, err := writeModule(o)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(module)
	built := make(map[string]string, len(names))
	for i, name := range names {
		if path := o.lookup(name); path != "" { // another process made it meanwhile
			built[name] = path
			continue
		}
		step := fmt.Sprintf("[%d/%d]", i+1, len(names))
		path, err := buildOne(ctx, o, goTool, module, name, step)
		if err != nil {
			return nil, err
		}
		built[name] = path
	}
	return built, nil
}

// buildOne asks Go how many packages are to be compiled, and compiles them.
func buildOne(ctx context.Context, o *Options, goTool, module, name, step string) (string, error) {
	_, _, version := o.Module()
	what := fmt.Sprintf("%s building %s for Kubernetes %s", step, name, version)
	o.Progress(fmt.Sprintf("%s with `go build` (about %s on two cores the first time, kept in %s)", what, programs[name].cold, o.cache()))
	tmp := filepath.Join(module, "bin-"+name)
	out, start := &output{}, time.Now()
	stop := every(reportEvery, func() {
		o.Progress(fmt.Sprintf("%s: %s elapsed%s", what, time.Since(start).Round(time.Second), out.now()))
	})
	err := goRun(ctx, o, goTool, module, out, "list", "-mod=readonly", "-deps", "-f", "{{if .Stale}}"+staleMark+"{{end}}", programs[name].pkg)
	if err == nil {
		// -v prints the name of each package that is compiled.
		err = goRun(ctx, o, goTool, module, out, "build", "-v", "-mod=readonly", "-ldflags", ldflags(version), "-o", tmp, programs[name].pkg)
	}
	stop()
	if ctx.Err() != nil {
		return "", fmt.Errorf("build %s: %w", name, context.Cause(ctx))
	}
	if err != nil {
		return "", fmt.Errorf("build %s with `go build` (%w): %s", name, err, out.text())
	}
	path := filepath.Join(o.cache(), name)
	if err := moveFile(tmp, path); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	o.Progress(fmt.Sprintf("%s: done in %s", what, time.Since(start).Round(time.Second)))
	return path, nil
}

// goRun runs Go, which also downloads the modules that it lacks.
func goRun(ctx context.Context, o *Options, goTool, module string, out *output, args ...string) error {
	// Without DWARF, which the stripped programs have no use for, and with fewer garbage
	// collections the compilers take a third less time.
	cmd := exec.CommandContext(ctx, goTool, args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOFLAGS="+kube.GoFlags(), "GOWORK=off", "CGO_ENABLED=0", "GO111MODULE=on", "GOGC=400", "GOMEMLIMIT=2GiB")
	// go starts compilers; all end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	if o.Background {
		// The compilers get it from go, which starts them later. Without it they only share
		// the processors evenly.
		_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, 10)
	}
	return cmd.Wait()
}

func ldflags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	flags := []string{"-s", "-w"}
	for _, x := range []string{
		"k8s.io/component-base/version.gitVersion=" + version,
		"k8s.io/component-base/version.gitMajor=" + major,
		"k8s.io/component-base/version.gitMinor=" + minor,
		"k8s.io/client-go/pkg/version.gitVersion=" + version,
	} {
		flags = append(flags, "-X", x)
	}
	return strings.Join(flags, " ")
}

// writeModule lays the embedded module out under its real names.
func writeModule(o *Options) (string, error) {
	dir, err := os.MkdirTemp(o.cache(), "build-")
	if err != nil {
		return "", fmt.Errorf("lay out the module to build: %w", err)
	}
	mod, sum, _ := o.Module()
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o644),
		os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644),
	)
	if err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("lay out the module to build: %w", err)
	}
	return dir, nil
}

// checkDisk looks at every folder that a build fills.
func checkDisk(ctx context.Context, o *Options, goTool, cache string) error {
	out, err := exec.CommandContext(ctx, goTool, "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("ask go for its cache folders: %w", err)
	}
	for _, dir := range append(strings.Fields(string(out)), cache) {
		free, err := o.Free(dir)
		if err != nil {
			return fmt.Errorf("look for free disk space: %w", err)
		}
		if free < minFree {
			return fmt.Errorf("building the Kubernetes binaries needs 6 GB of free disk space, %s has %.1f GB: make room, or set $KUBEBUILDER_ASSETS to a folder with ready binaries",
				dir, float64(free)/(1<<30))
		}
	}
	return nil
}

// FreeBytes returns how much an ordinary user may still write at a path, or at its nearest
// parent that exists.
func FreeBytes(path string) (uint64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if errors.Is(err, unix.ENOENT) && path != filepath.Dir(path) {
			path = filepath.Dir(path)
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		return st.Bavail * uint64(st.Bsize), nil
	}
}

func moveFile(from, to string) error {
	if err := os.Chmod(from, 0o755); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// tail returns the last lines of what a command printed, on one line.
func tail(out []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
