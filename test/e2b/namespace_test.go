package e2b

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// filesEnv tells this binary to be inNamespace's first step: its value is a folder
// whose files take the places of those in /etc, the arguments are the program.
const filesEnv = "SANDLANE_E2B_ETC"

// resolvedBy returns a command whose program, in a mount namespace of its own, asks
// this name server and nobody else: not a daemon of the machine, no list of hosts.
func resolvedBy(ctx context.Context, t *testing.T, s *nameServer, args ...string) *exec.Cmd {
	t.Helper()
	etc := t.TempDir()
	for name, text := range map[string]string{
		"resolv.conf":   "nameserver " + s.addr.String() + "\noptions timeout:2 attempts:5\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		"hosts":         "127.0.0.1 localhost\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), filesEnv+"="+etc)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // makes all mounts private, too
	return cmd
}

// inNamespace puts the files where they belong and becomes the program. It returns
// only if that fails.
func inNamespace(etc string, args []string) error {
	files, err := os.ReadDir(etc)
	if err != nil {
		return err
	}
	for _, f := range files {
		target := filepath.Join("/etc", f.Name())
		err := unix.Mount(filepath.Join(etc, f.Name()), target, "", unix.MS_BIND, "")
		if errors.Is(err, fs.ErrNotExist) && f.Name() == "nsswitch.conf" {
			continue // a C library that has no such file
		}
		if err != nil {
			return fmt.Errorf("put %s in place: %w", target, err)
		}
	}
	if err := os.Unsetenv(filesEnv); err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, args, os.Environ()))
}
