package supervise

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// talk is a line that "talk" prints so often that its log becomes large.
const (
	talk      = "one line of a process that prints a lot\n"
	talkLines = (maxLog + maxLog/2) / len(talk)
)

// A log is moved away once it is large, at a start and while its process runs; no line is lost
// or torn.
func TestLargeLogIsMovedAway(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "talk")
	if err := os.WriteFile(spec.LogFile, make([]byte, maxLog+1), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Ready = logHas(spec.LogFile, "sleeping")
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	g.Stop("a")
	old, oldErr := os.ReadFile(spec.LogFile + ".1")
	now, nowErr := os.ReadFile(spec.LogFile)
	if err := errors.Join(oldErr, nowErr); err != nil {
		t.Fatal(err)
	}
	if len(old) > maxLog+maxLog/10 || !strings.HasPrefix(string(old), talk) || !strings.HasPrefix(string(now), talk) ||
		strings.Count(string(old)+string(now), talk) != talkLines || !strings.HasSuffix(string(now), "told to stop\n") {
		t.Errorf("%d and %d bytes, which begin with %.20q and %.20q, and end with %q", len(old), len(now), old, now, now[max(0, len(now)-40):])
	}
}

// An end with success is one although another process holds the output open, for which the
// successor does not wait.
func TestOutputThatIsHeldOpen(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	spec := g.spec("a", "leaves-a-child")
	spec.Ready = logHas(spec.LogFile, "sleeping")
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(g.one(t, "a").PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s := g.until(t, "a", func(s Status) bool { return s.Restarts == 1 })
	if s.LastExit != "exit status 0" {
		t.Errorf("%+v", s)
	}
}
