package sandboxd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

func (a *agent) attach(selector *processpb.ProcessSelector) (*result, error) {
	a.t.Helper()
	stream, err := a.processes.Connect(a.t.Context(), connect.NewRequest(&processpb.ConnectRequest{Process: selector}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	r := &result{}
	for stream.Receive() {
		r.take(stream.Msg().GetEvent())
	}
	return r, stream.Err()
}

// A client that leaves ends nothing; another attaches, by pid or tag, and finds
// the end even later.
func TestLivesOnAndAttach(t *testing.T) {
	a := newAgent(t, Options{})
	gate := fifo(t)
	req := shell("read x < " + gate + "; echo $x; exit 4")
	req.Tag = new("job")
	s := a.start(req)
	s.cancel()
	s.wait()
	attached := make(chan *result, 1)
	stream, err := a.processes.Connect(t.Context(), connect.NewRequest(&processpb.ConnectRequest{Process: &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Tag{Tag: "job"}}}))
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	go func() {
		r := &result{}
		for stream.Receive() {
			r.take(stream.Msg().GetEvent())
		}
		_ = stream.Close()
		attached <- r
	}()
	list, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 || list.Msg.GetProcesses()[0].GetTag() != "job" || list.Msg.GetProcesses()[0].GetPid() != s.pid {
		t.Errorf("list %v %v", list, err)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := <-attached; r.stdout.String() != "go\n" || r.end.GetExitCode() != 4 {
		t.Errorf("attached: %q %v", r.stdout.String(), r.end)
	}
	for range 2 {
		if r, err := a.attach(pid(s.pid)); err != nil || r.pid != s.pid || r.end.GetExitCode() != 4 {
			t.Errorf("after the end: %v %v", r, err)
		}
	}
	if list, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{})); err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("list after the end: %v %v", list, err)
	}
}

func TestEndIsForgotten(t *testing.T) {
	a := newAgent(t, Options{Retention: time.Millisecond})
	r := a.start(shell("true")).wait()
	eventually(t, "the process is forgotten", func() bool {
		_, err := a.attach(pid(r.pid))
		return connect.CodeOf(err) == connect.CodeNotFound
	})
}

// The deadline kills, even when the client has left before it.
func TestDeadlineKills(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		a := newAgent(t, Options{})
		file := filepath.Join(t.TempDir(), "pid")
		s := a.start(shell("echo $$ > "+file+"; sleep 300 & wait"), "Connect-Timeout-Ms", "3000") // so long that it is seen alive on a busy machine
		eventually(t, "it lives", func() bool { return alive(file) })
		if leaves {
			s.cancel()
		}
		s.wait()
		if !leaves {
			wantCode(t, "the stream", s.Err(), connect.CodeDeadlineExceeded)
		}
		eventually(t, "it is killed", func() bool { return !alive(file) })
		if r, err := a.attach(pid(s.pid)); err != nil || r.end.GetStatus() != "signal: killed" {
			t.Errorf("its end: %v %v", r, err)
		}
	}
}

// A server left in the background outlives the deadline of the request that started
// it. It is still listed, can be attached to, and is killed by its process's pid.
func TestDeadlineSparesTheBackground(t *testing.T) {
	a := newAgent(t, Options{})
	file := filepath.Join(t.TempDir(), "pid")
	s := a.start(shell("sleep 300 & echo $! > "+file), "Connect-Timeout-Ms", "2000") // so long that it is started on a busy machine
	s.wait()
	wantCode(t, "the stream", s.Err(), connect.CodeDeadlineExceeded)
	// A later process that is killed by its deadline shows that this deadline is over.
	probe := a.start(shell("sleep 300 & wait"), "Connect-Timeout-Ms", "700")
	probe.wait()
	if r, err := a.attach(pid(probe.pid)); err != nil || r.end.GetStatus() != "signal: killed" {
		t.Errorf("the end of a later one: %v %v", r, err)
	}
	if !alive(file) {
		t.Fatal("the deadline killed the server")
	}
	list, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 || list.Msg.GetProcesses()[0].GetPid() != s.pid {
		t.Errorf("list %v %v", list, err)
	}
	if _, err := a.processes.SendSignal(t.Context(), connect.NewRequest(&processpb.SendSignalRequest{Process: pid(s.pid), Signal: processpb.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is killed", func() bool { return !alive(file) })
}

func TestKeepalive(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.start(shell("sleep 300"), "Keepalive-Ping-Interval", "1")
	for s.keepalives == 0 && s.Receive() {
		s.take(s.Msg().GetEvent())
	}
	if s.keepalives != 1 {
		t.Errorf("no keepalive: %v", s.Err())
	}
	s.cancel()
	s.wait()
}

// All of a large output arrives and in order.
func TestLargeOutput(t *testing.T) {
	a := newAgent(t, Options{})
	r := a.start(shell("seq 1 1000000")).wait()
	lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n")
	if len(lines) != 1000000 || lines[0] != "1" || lines[234567] != "234568" || lines[999999] != "1000000" {
		t.Errorf("%d lines", len(lines))
	}
}

// A reader that stops reading stops the writer instead of filling memory: what
// is taken from the process is what sockets and pipes hold, some MB.
func TestBackPressure(t *testing.T) {
	a := newAgent(t, Options{})
	file := filepath.Join(t.TempDir(), "progress")
	s := a.start(shell("for i in $(seq 40); do head -c 1000000 /dev/zero; printf x >> " + file + "; done"))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	megabytes := int64(0)
	for still := 0; still < 10; still++ {
		<-tick.C
		if info, err := os.Stat(file); err == nil && info.Size() != megabytes {
			megabytes, still = info.Size(), 0
		}
	}
	if megabytes > 20 {
		t.Errorf("%d MB were taken from the process while nobody read", megabytes)
	}
	r := s.wait()
	if r.stdout.Len() != 40_000_000 || r.end == nil {
		t.Errorf("%d bytes", r.stdout.Len())
	}
}

func TestTerminal(t *testing.T) {
	a := newAgent(t, Options{})
	size := func(cols, rows uint32) *processpb.PTY {
		return &processpb.PTY{Size: &processpb.PTY_Size{Cols: cols, Rows: rows}}
	}
	req := shell("stty size; read x; stty size; test -t 1 && echo tty-$x; exit 5")
	req.Pty = size(80, 24)
	s := a.start(req)
	for !strings.Contains(s.pty.String(), "24 80") && s.Receive() {
		s.take(s.Msg().GetEvent())
	}
	if _, err := a.processes.Update(t.Context(), connect.NewRequest(&processpb.UpdateRequest{Process: pid(s.pid), Pty: size(101, 31)})); err != nil {
		t.Fatal(err)
	}
	_, err := a.processes.SendInput(t.Context(), connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: stdin("x")}))
	wantCode(t, "stdin of a terminal", err, connect.CodeFailedPrecondition)
	_, err = a.processes.CloseStdin(t.Context(), connect.NewRequest(&processpb.CloseStdinRequest{Process: pid(s.pid)}))
	wantCode(t, "closing a terminal", err, connect.CodeFailedPrecondition)
	input := &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte("ü\n")}}
	if _, err := a.processes.SendInput(t.Context(), connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: input})); err != nil {
		t.Fatal(err)
	}
	r := s.wait()
	if !strings.Contains(r.pty.String(), "31 101") || !strings.Contains(r.pty.String(), "tty-ü") || r.end.GetExitCode() != 5 {
		t.Errorf("%q %v", r.pty.String(), r.end)
	}
}

// Shutdown cuts streams before it ends processes: an SDK must see a sandbox that
// is gone, not a command that has ended.
func TestShutdown(t *testing.T) {
	a := newAgent(t, Options{Grace: patience})
	file := filepath.Join(t.TempDir(), "pid")
	polite := a.start(shell("trap 'echo bye >> " + file + "; exit 9' TERM; echo $$ > " + file + "; while :; do sleep 0.05; done"))
	eventually(t, "it runs", func() bool { return alive(file) })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.stop()
	}()
	if r := polite.wait(); r.end != nil || polite.Err() == nil {
		t.Errorf("the stream ended with %v, %v", r.end, polite.Err())
	}
	<-stopped
	if text, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(text), "bye\n") {
		t.Errorf("the process could not say good-bye: %q, %v", text, err)
	}
}

func TestShutdownKills(t *testing.T) {
	a := newAgent(t, Options{})
	file := filepath.Join(t.TempDir(), "pid")
	s := a.start(shell("trap '' TERM; echo $$ > " + file + "; while :; do sleep 0.05; done"))
	eventually(t, "it runs", func() bool { return alive(file) })
	s.cancel()
	s.wait()
	a.stop()
	if alive(file) {
		t.Error("it outlived sandboxd")
	}
}

func TestUsers(t *testing.T) {
	a := newAgent(t, Options{})
	s := a.start(shell("id"), "Authorization", "Basic bm9ib2R5LWhlcmU6") // nobody-here:
	wantCode(t, "an unknown user", s.Err(), connect.CodeUnauthenticated)
	s.wait()
	if os.Geteuid() != 0 {
		t.Skip("switching users needs root")
	}
	r := a.start(shell("id -un; echo $USER; echo e > /dev/stderr"), "Authorization", "Basic bm9ib2R5Og==").wait() // nobody:
	if r.stdout.String() != "nobody\nnobody\n" || r.stderr.String() != "e\n" {
		t.Errorf("%q %q", r.stdout.String(), r.stderr.String())
	}
}
