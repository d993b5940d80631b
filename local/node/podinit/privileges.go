package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// giveUp drops, on this thread, everything that s does not keep. With self it
// also takes on the user and arms the parent-death signal; a child does that
// for itself.
func giveUp(s *initspec.Spec, self bool) error {
	if s.KeepCaps != nil {
		if err := dropBounding(s.KeepCaps); err != nil {
			return err
		}
	}
	if self && (s.UID != 0 || s.GID != 0 || s.Root != nil) {
		if err := become(s.UID, s.GID); err != nil {
			return err
		}
	}
	if s.KeepCaps != nil && s.UID == 0 {
		if err := capset(s.KeepCaps); err != nil {
			return err
		}
	}
	if s.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	if s.NoUserNamespaces {
		if err := refuseUserNamespaces(); err != nil {
			return err
		}
	}
	if self {
		// The kernel forgets it when credentials change.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("arm the parent-death signal: %w", err)
		}
	}
	return nil
}

func dropBounding(keep []int) error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keep, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

func capset(keep []int) error {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	var mask [2]uint32
	for _, c := range keep {
		mask[c/32] |= 1 << (c % 32)
	}
	for i := range data {
		data[i].Permitted &= mask[i]
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}

// become takes on the user, on this thread alone: an exec follows.
func become(uid, gid int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("drop groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return fmt.Errorf("become group %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}

// prepare starts a session, enters the working directory and finds the program.
func prepare(s *initspec.Spec) (string, error) {
	unix.Umask(0o022)
	if _, err := unix.Setsid(); err != nil && !errors.Is(err, unix.EPERM) {
		return "", fmt.Errorf("start a session: %w", err)
	}
	if err := enterDir(s.Dir); err != nil {
		return "", err
	}
	return find(s.Args[0], s.Env)
}

func enterDir(dir string) error {
	if dir == "" {
		return nil
	}
	_ = os.MkdirAll(dir, 0o755)
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("enter the working directory: %w", err)
	}
	// The kernel says "(unreachable)" of a folder that is not below the root.
	var now [unix.PathMax]byte
	if n, err := unix.Getcwd(now[:]); err != nil || n == 0 || now[0] != '/' {
		return fmt.Errorf("the working directory %q is not in the container", dir)
	}
	return nil
}

func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			for dir := range strings.SplitSeq(path, ":") {
				full := filepath.Join(dir, name)
				if info, err := os.Stat(full); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
					return full, nil
				}
			}
			break
		}
	}
	return "", fmt.Errorf("exec %q: not found in $PATH", name)
}

func execError(path string, err error) error { return fmt.Errorf("exec %q: %w", path, err) }
