package kubetest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// stopTime is how long a process may take to stop before it is killed. An API server
// that watches are open at takes a minute.
const stopTime = 3 * time.Second

// Restorable is a control plane of one test, whose etcd can be restored from a backup.
type Restorable struct {
	*ControlPlane
	dir string
}

// LaunchRestorable starts one until the test ends.
func LaunchRestorable(t testing.TB) *Restorable {
	t.Helper()
	r := &Restorable{dir: t.TempDir()}
	env := &envtest.Environment{ControlPlaneStopTimeout: stopTime}
	env.ControlPlane.Etcd = &envtest.Etcd{DataDir: r.data()}
	// Of its own, so that a restart serves with the same certificate.
	env.ControlPlane.GetAPIServer().CertDir = filepath.Join(r.dir, "certificates")
	err := errors.Join(os.Mkdir(r.data(), 0o700), os.Mkdir(filepath.Join(r.dir, "certificates"), 0o700))
	if err == nil {
		r.ControlPlane, err = launch(env)
	}
	if err != nil {
		t.Fatalf("kubetest: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Logf("kubetest: the control plane was killed: %v", err)
		}
	})
	return r
}

func (r *Restorable) data() string   { return filepath.Join(r.dir, "etcd") }
func (r *Restorable) backup() string { return filepath.Join(r.dir, "backup") }

// Backup keeps what etcd has, for Restore. Both processes stop meanwhile.
func (r *Restorable) Backup(t testing.TB) {
	t.Helper()
	r.restart(t, func() error { return os.CopyFS(r.backup(), os.DirFS(r.data())) })
}

// Restore gives etcd what it had at the Backup, as an administrator would: with both
// processes stopped, and without raising its revisions.
func (r *Restorable) Restore(t testing.TB) {
	t.Helper()
	r.restart(t, func() error {
		return errors.Join(os.RemoveAll(r.data()), os.CopyFS(r.data(), os.DirFS(r.backup())))
	})
}

// restart stops both processes, and starts them again at their addresses.
func (r *Restorable) restart(t testing.TB, between func() error) {
	t.Helper()
	plane := &r.env.ControlPlane
	if err := errors.Join(plane.APIServer.Stop(), plane.Etcd.Stop()); err != nil {
		t.Logf("kubetest: the control plane was killed: %v", err)
	}
	for _, address := range []string{plane.APIServer.SecureServing.URL("https", "").Host, plane.Etcd.URL.Host} {
		Eventually(t, address+" to be free", func() error {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return nil
			}
			return errors.Join(errors.New("somebody listens"), c.Close())
		})
	}
	if err := between(); err != nil {
		t.Fatalf("kubetest: changing etcd's data: %v", err)
	}
	if err := plane.Etcd.Start(); err != nil {
		t.Fatalf("kubetest: starting etcd again: %v", err)
	}
	if err := plane.APIServer.Start(); err != nil {
		t.Fatalf("kubetest: starting the API server again: %v", err)
	}
}
