package supervise

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process is started, and started again, only when what it needs serves.
func TestAfter(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	serves := make(chan struct{}, 1)
	spec := g.spec("a", "sleep")
	asked := make(chan struct{}, 1000)
	spec.After = func(ctx context.Context) error {
		asked <- struct{}{}
		select {
		case <-serves:
			return nil
		default:
			return errors.New("not yet")
		}
	}
	started := make(chan error, 1)
	go func() { started <- g.Start(t.Context(), spec) }()
	<-asked
	<-asked
	if s := g.one(t, "a"); s.PID != 0 {
		t.Fatalf("started too early: %+v", s)
	}
	serves <- struct{}{}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 {
		<-asked
	}
	_ = syscall.Kill(g.one(t, "a").PID, syscall.SIGKILL)
	<-asked
	<-asked
	if s := g.one(t, "a"); s.PID != 0 || s.State != Waiting {
		t.Fatalf("started again too early: %+v", s)
	}
	serves <- struct{}{}
	s := g.until(t, "a", func(s Status) bool { return s.State == Running && s.Restarts == 1 })
	_ = syscall.Kill(s.PID, syscall.SIGKILL)
	<-asked
	g.Stop("a")
	if s := g.one(t, "a"); s.State != Stopped || s.PID != 0 {
		t.Errorf("stopped while it waited: %+v", s)
	}
	never := g.spec("b", "sleep")
	never.ReadyTimeout = 100 * time.Millisecond
	never.After = func(context.Context) error { return errors.New("nothing serves") }
	if err := g.Start(t.Context(), never); !errors.Is(err, errNotReady) || !strings.Contains(err.Error(), "nothing serves") {
		t.Errorf("Start: %v", err)
	}
}

// A program that ends in order again and again is started again without a growing
// pause; one that fails is not.
func TestPauseAfterAnEnd(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"sleep": true, "sleep-fail": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			var pauses []time.Duration
			g.o.MinPause, g.o.MaxPause = time.Millisecond, time.Second
			g.o.Log = slog.New(onPause(func(d time.Duration) { pauses = append(pauses, d) }))
			spec := g.spec("a", mode)
			spec.Ready = func(context.Context) error { // of this process, not of one before
				b, _ := os.ReadFile(spec.LogFile)
				if log := string(b); strings.Count(log, "sleeping") == strings.Count(log, "told to stop") {
					return errors.New("not yet")
				}
				return nil
			}
			if err := g.Start(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= 3; n++ {
				if err := syscall.Kill(g.one(t, "a").PID, syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				g.until(t, "a", func(s Status) bool { return s.State == Running && s.Restarts == n })
			}
			g.Stop("a")
			if len(pauses) != 3 || (pauses[2] == time.Millisecond) != want {
				t.Errorf("pauses %v", pauses)
			}
		})
	}
}

// onPause is a log handler that takes lines about pauses only.
type onPause func(time.Duration)

func (onPause) Enabled(context.Context, slog.Level) bool { return true }
func (f onPause) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f onPause) WithGroup(string) slog.Handler          { return f }
func (f onPause) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "pause" {
			f(a.Value.Duration())
		}
		return true
	})
	return nil
}
