package sandboxd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is written after the machine's clock was set back is in an archive, whoever set it:
// its time is before the start of the container.
func TestArchiveAfterTheClockWasSetBack(t *testing.T) {
	const back = time.Hour
	for _, tc := range []struct {
		name string
		// ahead is how far the clock is ahead of the time since boot: when the container
		// starts, at an /init before it sets the clock, after that, and at the archive.
		start, initially, set, archived time.Duration
		kept                            bool
	}{
		{"not at all", 0, 0, 0, 0, false},
		{"before the archive", back, back, back, 0, true},
		{"by /init", back, back, 0, 0, true},
		{"by /init, and then put right", back, back, 0, back, true},
		{"before /init, which puts it right", back, 0, back, back, true},
		{"less far than it was set forward before", back, 3 * back, 3 * back, 2 * back, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var ahead atomic.Int64
			ahead.Store(int64(tc.start))
			clock := newWallClock(func() time.Duration { return time.Duration(ahead.Load()) }, func(time.Time) error {
				ahead.Store(int64(tc.set))
				return nil
			}, func() (clockSets, error) { return make(stubSets), nil })
			g := newGateway("pod-1")
			tree := tempLayer(t)
			tree.Since = time.Now().Add(back / 2) // files have the time now, as if the clock had been set
			a := newAgent(t, g.options(Options{Freezer: &stubFreezer{}, Layer: tree, SetClock: true, clock: clock}))
			ahead.Store(int64(tc.initially))
			g.init(a, 204, "", `{"timestamp":"2026-01-01T10:00:00Z"}`)
			if err := os.WriteFile(filepath.Join(tree.Base, "home/f"), []byte("written late"), 0o600); err != nil {
				t.Fatal(err)
			}
			ahead.Store(int64(tc.archived))
			status, data := g.command(a, "archive", `{}`, "")
			if status != 200 || strings.Contains(data, "written late") != tc.kept {
				t.Errorf("%d, %d bytes; want the file: %v", status, len(data), tc.kept)
			}
		})
	}
}

// stubSets lets a test say that the clock was set.
type stubSets chan struct{}

func (s stubSets) next() error {
	if _, open := <-s; !open {
		return os.ErrClosed
	}
	return nil
}

func (s stubSets) Close() error { close(s); return nil }

// So is what is written while the clock is back, although it was put right before the archive.
func TestArchiveAfterTheClockWasSetBackAndForward(t *testing.T) {
	const back = time.Hour
	var ahead atomic.Int64
	ahead.Store(int64(back))
	sets := make(stubSets)
	clock := newWallClock(func() time.Duration { return time.Duration(ahead.Load()) }, nil, func() (clockSets, error) { return sets, nil })
	g := newGateway("pod-1")
	tree := tempLayer(t)
	tree.Since = time.Now().Add(back / 2) // files have the time now, as if the clock had been set
	a := newAgent(t, g.options(Options{Freezer: &stubFreezer{}, Layer: tree, clock: clock}))
	g.init(a, 204, "", `{}`)
	for _, at := range []time.Duration{0, back} {
		must(t, os.WriteFile(filepath.Join(tree.Base, "home/f"), []byte("written late"), 0o600))
		ahead.Store(int64(at))
		sets <- struct{}{}
		sets <- struct{}{} // taken once the first was handled
	}
	if status, data := g.command(a, "archive", `{}`, ""); status != 200 || !strings.Contains(data, "written late") {
		t.Errorf("%d, %d bytes, without the file", status, len(data))
	}
}

// The kernel says each time that the clock was set; here by a nanosecond, which is taken back.
func TestKernelSaysThatTheClockWasSet(t *testing.T) {
	sets, err := newTimer()
	must(t, err)
	next := make(chan error)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			err := sets.next()
			next <- err
			if err != nil {
				return
			}
		}
	}()
	for _, by := range []int64{1, 999_999_999} {
		step := &unix.Timex{Modes: unix.ADJ_SETOFFSET | unix.ADJ_NANO, Time: unix.Timeval{Usec: by}}
		if by != 1 {
			step.Time.Sec = -1
		}
		if _, err := unix.Adjtimex(step); errors.Is(err, unix.EPERM) {
			t.Log("this container may not set the clock")
			break
		} else if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-next:
			must(t, err)
		case <-time.After(patience):
			t.Fatal("the clock was set, and nothing says so")
		}
	}
	must(t, sets.Close())
	if err := <-next; err == nil {
		t.Error("it was set once more, or waits though it is closed")
	}
	<-stopped
}
