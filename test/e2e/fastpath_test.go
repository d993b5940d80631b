package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// `up --fast-path=auto` has Envoy answer hits by itself, says so, does so again after
// its gateway and after Envoy were killed, and leaves no table behind.
func TestFastPathByUp(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler (cc): up may have no module")
	}
	t.Parallel()
	takeTurn(t)
	state, before := stateDir(t), machine(t)
	s := startWith(t, state, "--pool-size", "2", "--isolation", "full", "--fast-path", "auto")
	sum := sha256.Sum256([]byte(realPath(t, state)))
	table := filepath.Join("/dev/shm", "sandlane-"+hex.EncodeToString(sum[:6]), "gateway", "control")
	if _, err := os.Stat(table); err != nil || !s.FastPath {
		t.Fatalf("the fast path is %v, its table: %v\n%s", s.FastPath, err, s.Logs(20))
	}
	pod := s.Touch(t, "known", "")
	answered := func(after string) {
		t.Helper()
		inEnvoy, _, err := s.FastPathShare(t.Context())
		if err != nil {
			inEnvoy = 0 // a gateway that comes back counts anew
		}
		s.Eventually(t, 30*time.Second, "Envoy to answer by itself after "+after, func() (bool, string) {
			a, err := s.Try(t.Context(), nil, stack.Request{ID: "known"})
			if err != nil || a.Echo == nil {
				return false, fmt.Sprint(a, err)
			}
			if a.Echo.PodUID != pod.PodUID {
				t.Fatalf("pod %s answered for one of %s", a.Echo.PodUID, pod.PodUID)
			}
			n, _, err := s.FastPathShare(t.Context())
			if n < inEnvoy {
				inEnvoy = 0
			}
			return err == nil && n > inEnvoy, fmt.Sprint(n, err)
		})
		out, err := s.Run(t.Context(), "status")
		if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), s.Up.GatewayURL+" on ") {
			t.Errorf("status after %s: %v\n%s", after, err, out)
		}
	}
	answered("the start")
	for _, name := range []string{"gateway", "envoy"} {
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
		former := s.Up.Gateways[0].Pids[name]
		if err := syscall.Kill(former, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.Eventually(t, 30*time.Second, name+" to be there again", func() (bool, string) {
			if err := s.Reload(); err != nil {
				return false, err.Error()
			}
			now := s.Up.Gateways[0].Pids[name]
			return now > 1 && now != former, fmt.Sprint(now)
		})
		answered(name + " was killed")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	wantClean(t, state, before)
	if _, err := os.Stat(filepath.Dir(filepath.Dir(table))); !os.IsNotExist(err) {
		t.Errorf("the folder of tables after the stop: %v", err)
	}
}
