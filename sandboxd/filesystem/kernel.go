package filesystem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// IsKernels reports whether an open file is one that the kernel makes up, by the type of
// its file system: what is in it depends on the process that reads it, which is sandboxd
// and not one of the user's. It is asked of an open file, so that no link and no rename
// leads past it.
func IsKernels(f *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return false, fmt.Errorf("looking at the file system of %s: %w", f.Name(), err)
	}
	switch uint32(stat.Type) { //nolint:gosec // 32 bits by definition
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.BPF_FS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return true, nil
	}
	return false, nil
}
