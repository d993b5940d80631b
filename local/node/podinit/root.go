package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// readOnlyProc are parts of /proc through which a process with uid 0 could
// change the machine without any capability.
var readOnlyProc = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// hiddenProc are parts of /proc that show the machine.
var hiddenProc = []string{"/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/kallsyms", "/proc/config.gz"}

// enterRoot builds the root below r.Dir and makes it this process's root. The
// old root is detached, so that nothing of it can be reached.
func enterRoot(r *initspec.Root) error {
	if err := unix.Sethostname([]byte(r.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := mountRoot(r); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	for _, dir := range r.Dirs {
		path, err := inside(r.Dir, dir)
		if err == nil {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	for link, target := range r.Links {
		if err := os.Symlink(target, filepath.Join(r.Dir, link)); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	if err := mountDev(r.Dir); err != nil {
		return err
	}
	for _, b := range r.Binds {
		err := bind(r.Dir, b)
		if errors.Is(err, unix.EROFS) {
			return fmt.Errorf("mount %s: an image of the name local/… has this machine's folders, read-only, and takes no mount there; local/base has sandboxd and sudo without spec.template.runtimes", b.Target)
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", b.Target, err)
		}
	}
	for _, mask := range r.Masks {
		path := filepath.Join(r.Dir, mask)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if err := unix.Mount("masked", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "size=4k"); err != nil {
			return fmt.Errorf("mask %s: %w", mask, err)
		}
	}
	if err := mountProc(r.Dir); err != nil {
		return err
	}
	if err := mountBootID(r.Dir); err != nil {
		return err
	}
	if err := pivot(r.Dir); err != nil {
		return err
	}
	if r.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	return nil
}

// mountRoot mounts what the root begins with.
func mountRoot(r *initspec.Root) error {
	if r.Lower == "" {
		return unix.Mount("sandbox", r.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m")
	}
	for _, dir := range []string{r.Lower, r.Upper, r.Work, r.MountPoints} {
		if strings.ContainsAny(dir, `,:\`) {
			return fmt.Errorf("the folder %q has a character that an overlay's options cannot have", dir)
		}
	}
	options := "lowerdir=" + r.Lower + ":" + r.MountPoints + ",upperdir=" + r.Upper + ",workdir=" + r.Work
	if err := unix.Mount("overlay", r.Dir, "overlay", unix.MS_NODEV, options); err != nil {
		return err
	}
	// What follows protects the files in /proc by these names.
	for _, name := range []string{"proc", "dev"} {
		path := filepath.Join(r.Dir, name)
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			return fmt.Errorf("the image's /%s is not a folder", name)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return unix.Mount("dev", filepath.Join(r.Dir, "dev"), "tmpfs", unix.MS_NOSUID, "mode=755,size=64k")
}

// inside returns where a path in the new root is now. The root may have an image's links, each
// of which is followed as from inside; nothing of the container runs yet that could change one.
func inside(root, path string) (string, error) {
	return securejoin.SecureJoin(root, path)
}

func bind(root string, b initspec.Bind) error {
	target, err := inside(root, b.Target)
	if err != nil {
		return err
	}
	source, done, err := sourceOf(root, b)
	if err != nil {
		return err
	}
	defer done()
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if _, err := os.Stat(target); err != nil {
		if info.IsDir() {
			err = os.MkdirAll(target, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
			err = os.WriteFile(target, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID)
	if b.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if !b.Device {
		flags |= unix.MS_NODEV
	}
	return unix.Mount("", target, "", flags, "")
}

// sourceOf returns a path of what a bind shows. Below a volume it is the descriptor's, so that
// a container of the pod cannot put a link in its place between the look and the mount.
func sourceOf(root string, b initspec.Bind) (path string, done func(), err error) {
	if b.Source == "" {
		path = filepath.Join(root, "dev/.content") // is in memory, and the mount keeps it
		return path, func() { _ = os.Remove(path) }, writeNew(path, []byte(b.Content))
	}
	if b.SubPath == "" {
		return b.Source, func() {}, nil
	}
	dir, err := unix.Open(b.Source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, b.SubPath, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return "", nil, fmt.Errorf("open %s in its volume: %w", b.SubPath, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { _ = unix.Close(fd) }, nil
}

// mountDev makes the folder /dev with its two file systems and links; the
// devices themselves are binds of the spec.
func mountDev(root string) error {
	dev := filepath.Join(root, "dev")
	for _, dir := range []string{"pts", "shm"} {
		if err := os.MkdirAll(filepath.Join(dev, dir), 0o755); err != nil {
			return fmt.Errorf("make /dev/%s: %w", dir, err)
		}
	}
	if err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := unix.Mount("shm", dev+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size=64m"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	for link, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, link)); err != nil {
			return fmt.Errorf("link /dev/%s: %w", link, err)
		}
	}
	return nil
}

func mountProc(root string) error {
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, p := range readOnlyProc {
		path := filepath.Join(root, p)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("protect %s: %w", p, err)
		}
		if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("protect %s: %w", p, err)
		}
	}
	for _, p := range hiddenProc {
		path := filepath.Join(root, p)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := unix.Mount(filepath.Join(root, "dev/null"), path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", p, err)
		}
	}
	return nil
}

// mountBootID gives the container a boot ID of its own, so that a program can tell, as in a
// virtual machine, whether all that ran was started anew: the container's next run has
// another one.
func mountBootID(root string) error {
	target := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if _, err := os.Stat(target); err != nil {
		return nil
	}
	id, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/uuid")) // another one at each read, in the same form
	if err != nil {
		return fmt.Errorf("make a boot ID: %w", err)
	}
	source := filepath.Join(root, "dev/.boot_id")
	if err := writeNew(source, id); err != nil {
		return fmt.Errorf("make a boot ID: %w", err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the boot ID: %w", err)
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("protect the boot ID: %w", err)
	}
	if err := os.Remove(source); err != nil { // the mount keeps it
		return fmt.Errorf("hide the boot ID's file: %w", err)
	}
	return nil
}

// writeNew writes a file that must not be there yet, not even as a link of an image.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// pivot makes the folder the root. The old root comes to lie on top of it, and is detached there
// (pivot_root(2)), so that no folder is made for it, which would be one on the disk.
func pivot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	return nil
}
