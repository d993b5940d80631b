package filesystem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// IsKernels reports whether the kernel generates the contents of an open file, by the type of
// its file system. Such contents depend on the process that reads them, which is sandboxd
// and not a process of the user. IsKernels checks an open file, so that no link and no rename
// can bypass it.
func IsKernels(f *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return false, fmt.Errorf("reading the type of the file system of %s: %w", f.Name(), err)
	}
	switch uint32(stat.Type) { //nolint:gosec // 32 bits by definition
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.BPF_FS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return true, nil
	}
	return false, nil
}
