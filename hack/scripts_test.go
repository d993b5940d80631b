// Package hack_test tests the scripts of this folder.
package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// flaky.sh writes a line a run, goes on where it was stopped, and names what failed
// with the seed to run it again.
func TestFlakyGoesOnWhereItWasStopped(t *testing.T) {
	folder := t.TempDir()
	tests := filepath.Join(folder, "bin", "test.ports.test")
	count := filepath.Join(folder, "count")
	// It stands for the package's tests: the third run fails.
	script := "#!/bin/sh\necho x >>" + count + "\n[ $(wc -l <" + count + ") != 3 ] || { echo '--- FAIL: TestX (0.00s)'; exit 1; }\n"
	if err := os.MkdirAll(filepath.Dir(tests), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tests, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(rounds string) (string, []string, error) {
		cmd := exec.CommandContext(t.Context(), "./flaky.sh", "-n", rounds, "-j", "1", "-l", "1", "-d", folder, "./test/ports")
		cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=unused", "ENVOY_BIN=unused")
		out, err := cmd.CombinedOutput()
		lines, _ := os.ReadFile(filepath.Join(folder, "runs.txt")) // an empty one fails below
		return string(out), strings.Split(strings.TrimSpace(string(lines)), "\n"), err
	}
	if out, lines, err := run("2"); err != nil || len(lines) != 2 || !strings.Contains(lines[1], "test/ports ok ") {
		t.Fatalf("two rounds: %v, lines %q\n%s", err, lines, out)
	}
	out, lines, err := run("4")
	if err == nil || len(lines) != 4 || !strings.Contains(lines[2], " FAIL ") {
		t.Fatalf("two rounds more, one of which fails: %v, lines %q\n%s", err, lines, out)
	}
	_, seed, _ := strings.Cut(lines[2], "seed=")
	if !strings.Contains(out, "test/ports: TestX (again: SANDLANE_SEED="+seed+" go test -race -shuffle="+seed) {
		t.Errorf("the failure is not named with its seed:\n%s", out)
	}
	if out, again, err := run("4"); err == nil || len(again) != 4 {
		t.Errorf("nothing was left to run: %v, lines %q\n%s", err, again, out)
	}
}
