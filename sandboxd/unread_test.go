package sandboxd

import (
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

const plenty = 40_000_000 // bytes; more than the sockets and pipes on a way hold

// A client that reads nothing is cut, and is told why when it reads again. The process and
// another client, which reads, lose nothing.
func TestUnreadClientIsCut(t *testing.T) {
	a := newAgent(t, Options{Unread: 2 * time.Second})
	gate := fifo(t)
	unread := a.start(shell("read x < " + gate + "; head -c 40000000 /dev/zero; exit 3"))
	healthy, err := a.processes.Connect(t.Context(), connect.NewRequest(&processpb.ConnectRequest{Process: pid(unread.pid)}))
	if err != nil || !healthy.Receive() {
		t.Fatal(err, healthy.Err())
	}
	must(t, os.WriteFile(gate, []byte("go\n"), 0o600))
	r, told := &result{}, make(chan *result, 1)
	for healthy.Receive() {
		// The process has written more than the way to the other client holds, so that client
		// is cut. It reads why at once: its connection is closed some seconds later.
		before := r.stdout.Len()
		if r.take(healthy.Msg().GetEvent()); before < plenty/2 && r.stdout.Len() >= plenty/2 {
			go func() { told <- unread.wait() }()
		}
	}
	_ = healthy.Close()
	if r.stdout.Len() != plenty || r.end.GetExitCode() != 3 {
		t.Fatalf("the client that read got %d bytes and %v", r.stdout.Len(), r.end)
	}
	got := <-told
	wantCode(t, "the client that did not read", unread.Err(), connect.CodeAborted)
	if err := unread.Err(); err == nil || !strings.Contains(err.Error(), "had not read the process's output for 2s") || got.end != nil || got.stdout.Len() == 0 {
		t.Errorf("%v after %d bytes, end %v", err, got.stdout.Len(), got.end)
	}
}

// A client that reads a little now and then gets all, for longer than one that reads nothing may wait.
func TestSlowClientIsNotCut(t *testing.T) {
	const limit = 2 * time.Second
	a := newAgent(t, Options{Unread: limit})
	begun := time.Now()
	s := a.start(shell("head -c 40000000 /dev/zero"))
	tick := time.NewTicker(limit / 8)
	defer tick.Stop()
	for s.stdout.Len() < plenty/4 || time.Since(begun) < 3*limit {
		<-tick.C
		for want := s.stdout.Len() + plenty/100; s.stdout.Len() < want && s.Receive(); {
			s.take(s.Msg().GetEvent())
		}
		if s.Err() != nil {
			break
		}
	}
	if r := s.wait(); s.Err() != nil || r.stdout.Len() != plenty {
		t.Errorf("%d bytes, %v", r.stdout.Len(), s.Err())
	}
}
