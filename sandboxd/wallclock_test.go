package sandboxd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
			ahead := tc.start
			clock := newWallClock(func() time.Duration { return ahead }, func(time.Time) error {
				ahead = tc.set
				return nil
			})
			g := newGateway("pod-1")
			tree := tempLayer(t)
			tree.Since = time.Now().Add(back / 2) // files have the time now, as if the clock had been set
			a := newAgent(t, g.options(Options{Freezer: &stubFreezer{}, Layer: tree, SetClock: true, clock: clock}))
			ahead = tc.initially
			g.init(a, 204, "", `{"timestamp":"2026-01-01T10:00:00Z"}`)
			if err := os.WriteFile(filepath.Join(tree.Base, "home/f"), []byte("written late"), 0o600); err != nil {
				t.Fatal(err)
			}
			ahead = tc.archived
			status, data := g.command(a, "archive", `{}`, "")
			if status != 200 || strings.Contains(data, "written late") != tc.kept {
				t.Errorf("%d, %d bytes; want the file: %v", status, len(data), tc.kept)
			}
		})
	}
}
