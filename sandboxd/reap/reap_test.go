package reap

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Started again with this variable the test is the first process.
const asFirst = "REAP_TEST_SCRIPT"

func TestMain(m *testing.M) {
	if script := os.Getenv(asFirst); script != "" {
		// A subreaper inherits orphans as PID 1 does.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			os.Exit(99)
		}
		code, err := Run("/bin/sh", []string{"sh", "-c", script})
		if err != nil {
			os.Exit(98)
		}
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func first(t *testing.T, script string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asFirst+"="+script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewReader(out)
}

func TestExitCodes(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		cmd, _ := first(t, script)
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: %d, want %d", script, got, want)
		}
	}
}

// An orphan is reaped: its line in /proc goes away while the program lives.
func TestReapsOrphans(t *testing.T) {
	cmd, out := first(t, `orphan=$(sh -c 'sleep 0.05 >/dev/null & echo $!'); while test -e /proc/$orphan; do sleep 0.02; done; echo gone; exit 6`)
	if line, err := out.ReadString('\n'); err != nil || line != "gone\n" {
		t.Errorf("%q %v", line, err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 6 {
		t.Errorf("code %d: an orphan's end was taken for the program's", got)
	}
}

func TestForwardsSignals(t *testing.T) {
	cmd, out := first(t, `trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.02; done`)
	for _, want := range []string{"ready", "term"} {
		line, err := out.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != want {
			t.Fatalf("%q %v, want %s", line, err, want)
		}
		if want == "ready" {
			_ = cmd.Process.Signal(unix.SIGTERM)
		}
	}
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("code %d", cmd.ProcessState.ExitCode())
	}
}

// A program that is stopped by a signal goes on.
func TestContinuesTheProgram(t *testing.T) {
	cmd, out := first(t, `(kill -STOP $$; echo stopped) & wait; echo on; exit 5`)
	for _, want := range []string{"stopped\n", "on\n"} {
		if line, err := out.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q %v, want %q", line, err, want)
		}
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 5 {
		t.Errorf("code %d", got)
	}
}
