package sandboxd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// What a command has left in a session of its own lives on when the command is killed, and
// when its request times out: its output is taken.
func TestDaemonOutlivesItsCommand(t *testing.T) {
	for _, timeout := range []string{"600000", "3000"} { // so long that the daemon has begun on a busy machine
		a := newAgent(t, Options{})
		gate, lives := fifo(t), filepath.Join(t.TempDir(), "lives")
		// The daemon writes more than a pipe holds when its command has ended.
		s := a.start(shell("setsid sh -c 'echo up; read x < "+gate+"; head -c 1000000 /dev/zero || exit; echo err >&2 && echo > "+lives+"' & sleep 300"), "Connect-Timeout-Ms", timeout)
		for s.stdout.Len() == 0 && s.Receive() {
			s.take(s.Msg().GetEvent())
		}
		if timeout == "600000" {
			_, err := a.processes.SendSignal(t.Context(), connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: processpb.Signal_SIGNAL_SIGKILL}))
			must(t, err)
		}
		s.wait()
		if r, err := a.attach(pid(s.pid)); err != nil || r.end.GetStatus() != "signal: killed" {
			t.Errorf("its end: %v %v", r, err)
		}
		must(t, os.WriteFile(gate, []byte("go\n"), 0o600))
		eventually(t, "the daemon lives on", func() bool { _, err := os.Stat(lives); return err == nil })
	}
}

// A terminal ends with its shell, also while a background job has it open, and loses none of
// the shell's output.
func TestTerminalEndsWithItsShell(t *testing.T) {
	a := newAgent(t, Options{})
	file := filepath.Join(t.TempDir(), "pid")
	req := shell("trap '' HUP; sleep 300 & echo $! > " + file + "; seq 20000; echo last; exit 6")
	req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}}
	r := a.start(req).wait()
	if r.end.GetExitCode() != 6 || !strings.HasSuffix(r.pty.String(), "20000\r\nlast\r\n") {
		t.Errorf("%v after %q", r.end, r.pty.String()[max(0, r.pty.Len()-40):])
	}
	if !alive(file) {
		t.Error("the background job is gone")
	}
	a.start(shell("kill -9 $(cat " + file + ")")).wait()
}
