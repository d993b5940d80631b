package local

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// needPrograms skips, visibly, without the programs that `make test` names.
func needPrograms(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" || os.Getenv("ENVOY_BIN") == "" {
		t.Skip("set KUBEBUILDER_ASSETS and ENVOY_BIN (see `sandlane prepare`) to run this test")
	}
}

var twoGateways = []string{"--gateways", "2"}

// startUp runs the helper `up` detached and returns what it started.
func startUp(t *testing.T, dir string) UpFile {
	t.Helper()
	t.Setenv(helperEnv, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	t.Cleanup(func() {
		if _, err := Down(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	up, err := Detach(ctx, os.Args[0], dir, twoGateways, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("%s does not happen", what)
		case <-tick.C:
		}
	}
}

// One life of `up`, with the real control plane and Envoy and helpers in place
// of Sandlane's own processes.
func TestUpLife(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	s := newState(dir)
	earlier := s.path("node", "logs", "default_pod_uid", "c_0.log")
	if err := writeFile(earlier, []byte("of an earlier run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := startUp(t, dir)
	if _, err := os.Stat(earlier); err == nil {
		t.Error("a container's log of an earlier run is left")
	}

	var file UpFile
	readJSON(t, s.upFile(), &file)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "controller", "node", "gateway", "envoy"} {
		if startTime(file.Pids[name]) == "" {
			t.Errorf("up.json: %s has pid %d, which does not run", name, file.Pids[name])
		}
	}
	if file.APIKey != "e2b_0123" || file.GatewayURL != up.GatewayURL || len(file.Gateways) != 2 || file.Gateways[0].Name != "gateway" ||
		file.Gateways[0].Pids["envoy"] != file.Pids["envoy"] || file.Gateways[0].MetricsURL != file.MetricsURL {
		t.Errorf("up.json is %+v", file)
	}
	second := file.Gateways[1]
	if second.Name != "gateway-2" || startTime(second.Pids["gateway"]) == "" || startTime(second.Pids["envoy"]) == "" ||
		second.URL == file.GatewayURL || second.MetricsURL == file.MetricsURL || file.Pids["gateway-2"] != 0 {
		t.Errorf("the second gateway in up.json is %+v", second)
	}
	if st, err := os.Stat(s.upFile()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("up.json holds a key and has mode %v", st.Mode())
	}
	if again, err := ReadUpFile(dir); err != nil || again.GatewayURL != up.GatewayURL {
		t.Errorf("ReadUpFile: %+v, %v", again, err)
	}

	t.Run("the cluster is usable", func(t *testing.T) { checkCluster(t, s, file) })
	t.Run("a second up is refused", func(t *testing.T) {
		var running *ErrRunning
		_, err := Detach(t.Context(), os.Args[0], dir, twoGateways, func(string) {})
		if !errors.As(err, &running) || running.PID == 0 {
			t.Errorf("Detach: %v", err)
		}
		out, err := exec.Command(os.Args[0], "up", "--state", dir, "--gateways", "2").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "already running") {
			t.Errorf("up: %v\n%s", err, out)
		}
	})
	for i, name := range []string{"gateway", "gateway-2"} {
		t.Run("a killed "+name+" comes back", func(t *testing.T) {
			checkRestart(t, dir, name, func() int {
				readJSON(t, s.upFile(), &file)
				return file.Gateways[i].Pids["gateway"]
			})
		})
	}
	t.Run("logs of both", func(t *testing.T) {
		for _, name := range []string{"envoy", "envoy-2", "gateway", "gateway-2"} {
			if err := Logs(t.Context(), dir, name, false, io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("down", func(t *testing.T) {
		what, err := Down(t.Context(), dir)
		if err != nil || !strings.Contains(what, "kube-apiserver") {
			t.Errorf("Down: %q, %v", what, err)
		}
		wantNothingLeft(t, s, file)
		if what, err := Down(t.Context(), dir); err != nil || !strings.Contains(what, "not running") {
			t.Errorf("second Down: %q, %v", what, err)
		}
		var notRunning *ErrNotRunning
		if err := Status(t.Context(), dir, &strings.Builder{}); !errors.As(err, &notRunning) {
			t.Errorf("Status: %v", err)
		}
	})
}

// checkRestart kills a process and waits for the next one in up.json and in the status.
func checkRestart(t *testing.T, dir, name string, pid func() int) {
	before := pid()
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new pid in up.json", func() bool {
		now := pid()
		return now != before && startTime(now) != ""
	})
	var out strings.Builder
	eventually(t, "the restart in the status", func() bool {
		out.Reset()
		err := Status(t.Context(), dir, &out) // no gateway has a lease here
		return err != nil && strings.Contains(err.Error(), name+" has no lease") && strings.Contains(out.String(), "default/echo")
	})
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == name && (f[3] != "1" || f[4] != "ok") {
			t.Errorf("status line %q, want one restart and ok", line)
		}
	}
}

func checkCluster(t *testing.T, s state, file UpFile) {
	_, api, err := connect(file.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var pool v1alpha1.SandboxPool
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: poolNamespace, Name: echoName}, &pool); err != nil {
		t.Fatal(err)
	}
	sandbox := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: "abc"},
		Spec:       v1alpha1.SandboxSpec{Namespace: poolNamespace, Pool: echoName},
	}
	if err := api.Create(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the audit record", func() bool {
		b, err := os.ReadFile(s.auditLog())
		return err == nil && strings.Contains(string(b), `"resource":"sandboxes"`) && strings.Contains(string(b), `"verb":"create"`)
	})
	// The reduced controller manager still ends namespaces.
	if err := api.Delete(t.Context(), &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "none"}}); !apierrors.IsNotFound(err) {
		t.Errorf("delete of what is not there: %v", err)
	}
}

func wantNothingLeft(t *testing.T, s state, file UpFile) {
	t.Helper()
	for name, pid := range file.Pids {
		if startTime(pid) != "" {
			t.Errorf("%s (pid %d) still runs", name, pid)
		}
	}
	for _, g := range file.Gateways {
		for name, pid := range g.Pids {
			if startTime(pid) != "" {
				t.Errorf("%s of %s (pid %d) still runs", name, g.Name, pid)
			}
		}
	}
	for _, path := range []string{s.run, s.upFile(), s.path("cluster")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// A killed `up` leaves no process; down and the next up remove the rest.
func TestKilledUp(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	up := startUp(t, dir)
	s := newState(dir)
	pid, err := s.running()
	if err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of every child", func() bool {
		for _, pid := range up.Pids {
			if startTime(pid) != "" {
				return false
			}
		}
		return true
	})
	if _, err := os.Stat(s.upFile()); err != nil {
		t.Fatal("a killed up cannot have removed up.json:", err)
	}
	// The kernel frees the lock a moment after it has ended the children: they end with the
	// thread that started them, and the lock with the last thread.
	eventually(t, "the lock to be free", func() bool {
		pid, err := s.holder()
		if err != nil {
			t.Fatal(err)
		}
		return pid == 0
	})
	if _, err := ReadUpFile(dir); err == nil {
		t.Error("ReadUpFile believes the file of a killed up")
	}
	what, err := Down(t.Context(), dir)
	if err != nil || !strings.Contains(what, "was killed earlier") {
		t.Errorf("Down: %q, %v", what, err)
	}
	wantNothingLeft(t, s, up)
}

// down right after the kill meets an `up` that is still dying.
func TestDownOfADyingUp(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	up := startUp(t, dir)
	s := newState(dir)
	pid, err := s.running()
	if err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if what, err := Down(t.Context(), dir); err != nil {
		t.Errorf("Down: %q, %v", what, err)
	}
	wantNothingLeft(t, s, up)
}

// A child that does not start ends the whole start, with its own words.
func TestFailedStartLeavesNothing(t *testing.T) {
	needPrograms(t)
	t.Setenv(helperEnv, "1")
	t.Setenv("FAIL", "controller")
	dir := t.TempDir()
	_, err := Detach(t.Context(), os.Args[0], dir, twoGateways, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "controller did not start") || !strings.Contains(err.Error(), "told to fail") {
		t.Errorf("Detach: %v", err)
	}
	s := newState(dir)
	wantNothingLeft(t, s, UpFile{})
	if pid, err := s.running(); pid != 0 || err != nil {
		t.Errorf("running: %d, %v", pid, err)
	}
}
