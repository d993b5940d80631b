package files

import (
	"fmt"
	"net/http"
	"os"

	"github.com/sandlane/sandlane/sandboxd/filesystem"
)

// refuseKernel refuses an open file whose contents the kernel generates (procfs, sysfs).
func refuseKernel(f *os.File) error {
	kernels, err := filesystem.IsKernels(f)
	if kernels {
		err = failure{http.StatusForbidden, fmt.Sprintf("path '%s' is the kernel's; read it with a command", f.Name())}
	}
	return err
}
