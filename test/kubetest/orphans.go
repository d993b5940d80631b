package kubetest

import (
	"bytes"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sandlane/sandlane/test/orphans"
)

// guard has the control plane's processes killed and their folders removed if this
// process ends without stopping them. Where there is no /proc it does nothing.
func guard(env *envtest.Environment) (forget func(), err error) {
	etcd, server := env.ControlPlane.Etcd.DataDir, env.ControlPlane.GetAPIServer().CertDir
	var pids []string
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range commands {
		line, _ := os.ReadFile(name) // a process that is gone is none of these
		if bytes.Contains(line, []byte("--data-dir="+etcd+"\x00")) || bytes.Contains(line, []byte("--cert-dir="+server+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	if len(pids) == 0 {
		return func() {}, nil
	}
	const stop = `etcd=$1 server=$2; shift 2; kill -KILL "$@"; rm -rf "$etcd" "$server"`
	return orphans.Stop("/bin/sh", append([]string{"-c", stop, "stop", etcd, server}, pids...)...)
}
