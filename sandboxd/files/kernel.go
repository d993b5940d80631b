package files

import (
	"fmt"
	"net/http"
	"os"

	"golang.org/x/sys/unix"
)

// refuseKernel refuses a file that the kernel makes up, by the type of its file
// system: what is there depends on the process that asks, which is this one and not
// one of the user's. It is asked of an open file, so that no link and no rename leads
// past it.
func refuseKernel(f *os.File) error {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return fmt.Errorf("looking at the file system of %s: %w", f.Name(), err)
	}
	switch uint32(stat.Type) { //nolint:gosec // 32 bits by definition
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.BPF_FS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return failure{http.StatusForbidden, fmt.Sprintf("path '%s' is the kernel's; read it with a command", f.Name())}
	}
	return nil
}
