package kubetest

import (
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sandlane/sandlane/test/orphans"
)

// killByFolders kills the processes that have the first argument as etcd's folder or
// the second as the API server's, and removes both. It looks for them when it runs:
// a test may have restarted them.
const killByFolders = `for line in /proc/[0-9]*/cmdline; do ` +
	`if tr '\0' '\n' <"$line" 2>/dev/null | grep -qxF -e "--data-dir=$1" -e "--cert-dir=$2"; then ` +
	`pid=${line%/cmdline}; kill -KILL "${pid#/proc/}"; fi; done; rm -rf "$1" "$2"`

// guard has the control plane's processes killed and their folders removed if this
// process ends without stopping them. Where there is no /proc none is killed.
func guard(env *envtest.Environment) (forget func(), err error) {
	return orphans.Stop("/bin/sh", "-c", killByFolders, "kill", env.ControlPlane.Etcd.DataDir, env.ControlPlane.GetAPIServer().CertDir)
}
