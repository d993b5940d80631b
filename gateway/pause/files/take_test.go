package files

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/test/bubble"
)

// drips gives bytes now and then, until its context ends.
type drips struct {
	ctx   context.Context
	bytes int
	every time.Duration
	left  int // reads until io.EOF
}

func (d *drips) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	d.left--
	select {
	case <-time.After(d.every):
		return copy(p, make([]byte, d.bytes)), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (*drips) Close() error { return nil }

// Of many snapshots and pauses at once of one sandbox whose archive drips, one reads its files;
// the others are refused before anything is written.
func TestOneArchiveOfAClaimAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		places := 0
		w.x.o.Place = func(context.Context, string) (func(), error) { places++; return func() { places-- }, nil }
		slow, goOn := io.Pipe()
		w.files = slow
		var read atomic.Int32
		w.archived = func() { read.Add(1) }
		done := make(chan error, 80)
		for range cap(done) {
			go func() { _, err := w.x.Create(t.Context(), alpha, "i0", nil); done <- err }()
		}
		synctest.Wait()
		if len(done) != 79 || read.Load() != 1 || places != 1 || len(w.objects()) != 1 {
			t.Errorf("%d were refused, %d read files, %d have places, %d objects", len(done), read.Load(), places, len(w.objects()))
		}
		for range 79 {
			if err := <-done; !errors.Is(err, restapi.ErrSnapshotting) {
				t.Errorf("refused with %v", err)
			}
		}
		if _, err := NewHibernator(w.x, pauseAgent{w}, nil).Keep(t.Context(), w.sandbox, w.pod); !errors.Is(err, sandboxdclient.ErrBusy) {
			t.Errorf("a pause: %v", err)
		}
		_ = goOn.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if w.files = strings.NewReader("files"); w.take("k1") != nil || places != 0 {
			t.Errorf("the next one failed, or one of %d places is taken", places)
		}
	})
}

// A snapshot that gets no place stops no sandbox and makes no object; a pause tries again.
func TestNoPlaceForAnArchive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.x.o.Place = func(ctx context.Context, _ string) (func(), error) { <-ctx.Done(); return nil, ctx.Err() }
		w.archived = func() { t.Error("files are read without a place") }
		begun := time.Now()
		if err := w.take("k1"); !errors.Is(err, restapi.ErrBusy) || time.Since(begun) != placeWait || len(w.objects()) != 0 {
			t.Errorf("%v after %v, %d objects", err, time.Since(begun), len(w.objects()))
		}
		if _, err := NewHibernator(w.x, pauseAgent{w}, nil).Keep(t.Context(), w.sandbox, w.pod); !errors.Is(err, sandboxdclient.ErrBusy) {
			t.Errorf("a pause: %v", err)
		}
		if len(w.x.taking.claims) > 0 {
			t.Errorf("it still takes %v", w.x.taking.claims)
		}
	})
}

// An archive that comes too slowly loses its place. One that is slow, and a store that is, do not.
func TestAnArchiveThatDripsIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		archive drips
		store   time.Duration // it takes for each part
		cut     time.Duration
	}{
		"drips":          {archive: drips{bytes: 1, every: time.Second, left: 1000}, cut: leastWait},
		"sends nothing":  {archive: drips{every: time.Hour, left: 1}, cut: leastWait},
		"slow":           {archive: drips{bytes: 32 << 10, every: 1500 * time.Millisecond, left: 80}},
		"short and late": {archive: drips{bytes: 1, every: leastWait - time.Second, left: 1}},
		"a slow store":   {archive: drips{bytes: 32 << 10, every: time.Second, left: 20}, store: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				begun := time.Now()
				archive, err := newWorld(t).x.open(t.Context(), func(ctx context.Context) (io.ReadCloser, error) {
					tc.archive.ctx = ctx
					return &tc.archive, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				defer archive.Close()
				buf := make([]byte, 256<<10)
				for err == nil {
					_, err = archive.Read(buf)
					time.Sleep(tc.store)
				}
				switch took := time.Since(begun); {
				case tc.cut > 0 && (!errors.Is(publicError(err), restapi.ErrUnanswered) || took != tc.cut):
					t.Errorf("%v after %v", err, took)
				case tc.cut == 0 && !errors.Is(err, io.EOF):
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}
