package e2e

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/test/stack"
)

// bareRoot is a root of files like a container's: the binary sandlane, a shell, a few tools
// that sandboxes use, the libraries that these and Envoy need, and an empty home.
type bareRoot struct {
	Dir   string
	Binds []string // folders of the machine that are seen in it, at their own paths
}

// bareEnv makes this test binary enter the root that it describes and become sandlane there.
const bareEnv = "SANDLANE_BARE_ROOT"

const bareHome = "/root"

// newBareRoot makes a root in which these folders are seen.
func newBareRoot(t *testing.T, seen ...string) *bareRoot {
	t.Helper()
	r := &bareRoot{Dir: t.TempDir(), Binds: append([]string{"/dev", "/proc", "/sys", "/run"}, seen...)}
	for _, dir := range append([]string{"/tmp", "/etc", bareHome}, r.Binds...) {
		if err := os.MkdirAll(r.Dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own, err := stack.Binary()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, own, r.Dir+"/bin/sandlane")
	programs := []string{os.Getenv("ENVOY_BIN")} // whose libraries are needed; the bundle has itself
	for _, name := range []string{"bash", "sh", "cat", "echo", "id", "ls", "sleep"} {
		found, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		copyFile(t, found, r.Dir+"/bin/"+name)
		programs = append(programs, found)
	}
	for _, library := range linked(t, programs) {
		copyFile(t, library, r.Dir+library)
	}
	return r
}

// run runs sandlane in the root, and returns its exit code and what it printed.
func (r *bareRoot) run(t *testing.T, args ...string) (int, string) {
	t.Helper()
	description, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = []string{bareEnv + "=" + string(description)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("run %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// enterBareRoot makes the described root that of this process, which has mounts of its own,
// and becomes sandlane. It returns only if that fails.
func enterBareRoot(description string) error {
	var r bareRoot
	if err := json.Unmarshal([]byte(description), &r); err != nil {
		return err
	}
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(r.Dir, r.Dir, "", unix.MS_BIND, ""))
	for _, dir := range r.Binds {
		err = errors.Join(err, unix.Mount(dir, r.Dir+dir, "", unix.MS_BIND|unix.MS_REC, ""))
	}
	if err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	// The old root is put over the new one, and taken away.
	if err := errors.Join(os.Chdir(r.Dir), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return unix.Exec("/bin/sandlane", append([]string{"/bin/sandlane"}, os.Args[1:]...), []string{"HOME=" + bareHome, "PATH=/bin"})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// linked are the loaders and libraries that programs need, at the paths by which loaders find them.
func linked(t *testing.T, programs []string) (found []string) {
	t.Helper()
	for todo := slices.Clone(programs); len(todo) > 0; todo = todo[1:] {
		f, err := elf.Open(todo[0])
		if err != nil {
			t.Fatal(err)
		}
		if s := f.Section(".interp"); s != nil {
			name, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, string(name[:len(name)-1]))
		}
		names, err := f.ImportedLibraries()
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			var paths []string
			var err error
			for _, pattern := range []string{"/lib/*-linux-gnu/", "/lib64/", "/usr/lib/*-linux-gnu/", "/usr/lib64/", "/lib/", "/usr/lib/"} {
				if len(paths) == 0 && err == nil {
					paths, err = filepath.Glob(pattern + name)
				}
			}
			if err != nil || len(paths) == 0 {
				t.Fatalf("%s needs %s, which is not found: %v", todo[0], name, err)
			}
			if !slices.Contains(found, paths[0]) {
				found, todo = append(found, paths[0]), append(todo, paths[0])
			}
		}
	}
	return found
}
