package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/sandboxd/archive"
	"github.com/sandlane/sandlane/test/bubble"
)

// stuckWriter is an answer that its client does not read: each Write lasts until the
// deadline has come.
type stuckWriter struct {
	http.ResponseWriter
	writing, cut chan struct{}
	begin, end   sync.Once
}

func (w *stuckWriter) Write([]byte) (int, error) {
	w.begin.Do(func() { close(w.writing) })
	<-w.cut
	return 0, os.ErrDeadlineExceeded
}

func (w *stuckWriter) SetWriteDeadline(at time.Time) error {
	if !at.After(time.Now()) {
		w.unblock()
	}
	return nil
}

func (w *stuckWriter) unblock() { w.end.Do(func() { close(w.cut) }) }

// A gateway that has stopped reading, since its store does not take any more, keeps no
// resume waiting.
func TestUnfreezeEndsAnArchiveThatIsNotRead(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "f"), make([]byte, 4*archiveBuffer), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Freezer: &stubFreezer{}, Open: true, Layer: &archive.Tree{Base: base, Mounts: []archive.Mount{{Path: "/"}}}})
	if err := s.suspender.freeze(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	defer s.suspender.close()
	w := &stuckWriter{ResponseWriter: httptest.NewRecorder(), writing: make(chan struct{}), cut: make(chan struct{})}
	t.Cleanup(w.unblock)
	over := make(chan error, 1)
	go func() {
		over <- s.writeArchive(t.Context(), s.caller, &statusWriter{ResponseWriter: w}, archiveArguments{})
	}()
	<-w.writing
	if err := s.suspender.unfreeze(t.Context(), 2); !errors.Is(err, errStill) {
		t.Errorf("the unfreeze: %v", err)
	}
	select {
	case err := <-over:
		if err == nil {
			t.Error("the archive is whole")
		}
	case <-time.After(patience):
		t.Fatal("the archive waits for the gateway")
	}
	if err := s.suspender.unfreeze(t.Context(), 2); err != nil {
		t.Errorf("the unfreeze again: %v", err)
	}
}

// An archive for a hibernation that comes after a resume is refused, and the sandbox runs on.
func TestArchiveAfterAResume(t *testing.T) {
	f := &stubFreezer{}
	g, a, _ := layered(t, f)
	g.init(a, 204, "", `{}`)
	for number, name := range []string{"freeze", "unfreeze"} {
		if status := g.order(a, name, int64(number)+1); status != 204 {
			t.Fatalf("%s: %d", name, status)
		}
	}
	const hibernation = `{"environment":true,"frozen":true}`
	if status, answer := g.command(a, "archive", hibernation, ""); status != 409 {
		t.Errorf("it is resumed: %d %s", status, answer)
	}
	if got := fmt.Sprint(f.orders()); got != "[freeze thaw]" {
		t.Errorf("the freezer was asked for %s", got)
	}
	if status := g.order(a, "freeze", 3); status != 204 {
		t.Fatalf("freeze: %d", status)
	}
	if status, answer := g.command(a, "archive", hibernation, ""); status != 200 {
		t.Errorf("it is frozen: %d %s", status, answer)
	}
}

// What a request that began before the freeze is doing to files is done before they are
// read: the pod may be given up for what was read.
func TestArchiveOfAFrozenSandboxAwaitsRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newSuspender(&stubFreezer{}, &stubHolder{}, io.Discard)
		defer x.close()
		begun, done := make(chan struct{}), make(chan struct{})
		handler := x.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(begun)
			<-done
		}))
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/files/compose", nil))
		<-begun
		if err := x.freeze(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		read := false
		reads := func(context.Context) error { read = true; return nil }
		if err := x.stopForSnapshot(t.Context(), reads); !errors.Is(err, errStill) || read {
			t.Errorf("while a request is carried out: %v, read %v", err, read)
		}
		time.AfterFunc(requestsWait/2, func() { close(done) })
		if err := x.stopForSnapshot(t.Context(), reads); err != nil || !read {
			t.Errorf("once it is over: %v, read %v", err, read)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/envs", nil))
		if answer.Code != http.StatusBadGateway || x.requests.count() != 0 {
			t.Errorf("a request that comes then: %d, %d carried out", answer.Code, x.requests.count())
		}
	})
}
