package sandboxd

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// terminal is shell with a terminal.
func terminal(script string) *processpb.StartRequest {
	req := shell(script)
	req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}}
	return req
}

func ptyInput(text string) *processpb.ProcessInput {
	return &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte(text)}}
}

// send sends input, with the server's deadline after some milliseconds; 0 means none.
func (a *agent) send(ctx context.Context, to uint32, input *processpb.ProcessInput, milliseconds int) error {
	req := connect.NewRequest(&processpb.SendInputRequest{Process: pid(to), Input: input})
	if milliseconds > 0 {
		req.Header().Set("Connect-Timeout-Ms", strconv.Itoa(milliseconds))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(patience, cancel).Stop() // a deadline would be sent to the server
	_, err := a.processes.SendInput(ctx, req)
	return err
}

// onTerminal starts a command on a terminal, and a daemon that has left its group and keeps
// the terminal open.
func (a *agent) onTerminal() *started {
	a.t.Helper()
	daemon := filepath.Join(a.t.TempDir(), "daemon")
	s := a.start(terminal("setsid sh -c 'echo $$ > " + daemon + "; exec sleep 300' & sleep 300"))
	eventually(a.t, "the daemon lives", func() bool { return alive(daemon) })
	a.t.Cleanup(func() {
		text, _ := os.ReadFile(daemon)
		if n, _ := strconv.Atoi(strings.TrimSpace(string(text))); n > 1 {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	})
	resized := &processpb.UpdateRequest{Process: pid(s.pid), Pty: &processpb.PTY{Size: &processpb.PTY_Size{Cols: 101, Rows: 31}}}
	if _, err := a.processes.Update(a.t.Context(), connect.NewRequest(resized)); err != nil {
		a.t.Fatal(err)
	}
	return s
}

// A daemon that has a terminal open keeps no killed command's stream: the same as with
// pipes.
func TestKillWithDaemonHoldingTheTerminal(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.onTerminal()
	if _, err := a.processes.SendSignal(t.Context(), connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: processpb.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	ended := make(chan *result, 1)
	go func() { ended <- s.wait() }()
	eventually(t, "the stream ends", func() bool { return len(ended) == 1 })
	if r := <-ended; r.end.GetStatus() != "signal: killed" {
		t.Errorf("its end: %v, %v", r.end, s.Err())
	}
	list, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("it is still listed: %v, %v", list, err)
	}
}

// Nor does it keep sandboxd from ending: agent.stop fails if Serve does not return.
func TestShutdownWithDaemonHoldingTheTerminal(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.onTerminal()
	a.stop()
	s.wait()
}

// A writer that is cut off by its deadline holds neither the next one nor, once the program
// reads, any byte of later input back.
func TestTerminalInputBackPressure(t *testing.T) {
	a := newAgent(t, Options{})
	gate := fifo(t)
	s := a.start(terminal("stty -echo; echo started; read go < " + gate + "; grep -q end && echo all is read"))
	for !strings.Contains(s.pty.String(), "started") && s.Receive() {
		s.take(s.Msg().GetEvent())
	}
	lines := strings.Repeat(strings.Repeat("x", 1023)+"\n", 1<<10)
	for range 2 {
		wantCode(t, "a full terminal", a.send(t.Context(), s.pid, ptyInput(lines), 100), connect.CodeDeadlineExceeded)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.send(t.Context(), s.pid, ptyInput("\n"+lines+"end\n"), 0); err != nil {
		t.Fatal(err)
	}
	if r := s.wait(); !strings.Contains(r.pty.String(), "all is read") || r.end.GetExitCode() != 0 {
		t.Errorf("%q %v", r.pty.String(), r.end)
	}
}
