package sandboxd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// unread returns how many bytes of its input a process has not read.
func unread(t *testing.T, pid uint32) int {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An input that waits for another request's has a deadline, too, and goes when its client
// does.
func TestInputWaitsForAnotherUntilItsDeadline(t *testing.T) {
	a := newAgent(t, Options{})
	gate := fifo(t)
	s := a.start(shell("read go < " + gate))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- a.send(ctx, s.pid, stdin(strings.Repeat("x", 1<<20)), 0) }()
	eventually(t, "the other request writes", func() bool { return unread(t, s.pid) > 0 })
	second := make(chan error, 1)
	go func() { second <- a.send(t.Context(), s.pid, stdin("x"), 100) }()
	eventually(t, "the request that waits ends", func() bool { return len(second) == 1 })
	wantCode(t, "the request that waits", <-second, connect.CodeDeadlineExceeded)
	leave()
	wantCode(t, "the request that is left", <-left, connect.CodeCanceled)
	s.cancel()
	s.wait()
}

// A sandbox can be hibernated although a client has an input stream open to a process that
// does not read. After a resume the process gets what later requests write.
func TestArchiveBesideInputThatIsNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		start func(script string) *processpb.StartRequest
		input func(text string) *processpb.ProcessInput
	}{"pipe": {shell, stdin}, "terminal": {terminal, ptyInput}} {
		t.Run(name, func(t *testing.T) {
			g, a, _ := layered(t, &stubFreezer{})
			g.init(a, 204, "", `{}`)
			gate := fifo(t)
			s := a.start(c.start("read go < " + gate + "; grep -q end"))
			lines := strings.Repeat(strings.Repeat("x", 1023)+"\n", 1<<10)
			stream := a.processes.StreamInput(t.Context())
			must(t, stream.Send(&processpb.StreamInputRequest{Event: &processpb.StreamInputRequest_Start{Start: &processpb.StreamInputRequest_StartEvent{Process: pid(s.pid)}}}))
			must(t, stream.Send(&processpb.StreamInputRequest{Event: &processpb.StreamInputRequest_Data{Data: &processpb.StreamInputRequest_DataEvent{Input: c.input(lines)}}}))
			eventually(t, "the input is being written", func() bool { return unread(t, s.pid) > 0 })
			if status := g.order(a, "freeze", 1); status != 204 {
				t.Fatalf("freeze: %d", status)
			}
			if status, answer := g.command(a, "archive", `{"environment":true,"frozen":true}`, ""); status != 200 {
				t.Errorf("the archive: %d %s", status, answer)
			}
			if _, err := stream.CloseAndReceive(); err == nil {
				t.Error("the client is told that all was written")
			}
			if status := g.order(a, "unfreeze", 2); status != 204 {
				t.Fatalf("unfreeze: %d", status)
			}
			s.wait()
			if err := os.WriteFile(gate, []byte("go\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			must(t, a.send(t.Context(), s.pid, c.input("\n"+lines+"end\n"), 0))
			if r, err := a.attach(pid(s.pid)); err != nil || r.end.GetStatus() != "exit status 0" {
				t.Errorf("the process: %v, %v", r, err)
			}
			_, err := a.processes.SendInput(t.Context(), connect.NewRequest(&processpb.SendInputRequest{Process: pid(s.pid), Input: c.input("x")}))
			wantCode(t, "input after the end", err, connect.CodeNotFound)
		})
	}
}
