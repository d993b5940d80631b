package sandboxd

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// leftoverWorld is a sandbox whose freezer is a stub.
type leftoverWorld struct {
	t *testing.T
	f *stubFreezer
	x *suspender
}

func newLeftoverWorld(t *testing.T) leftoverWorld {
	f := &stubFreezer{}
	return leftoverWorld{t, f, newSuspender(f, &stubHolder{}, io.Discard)}
}

// asked wants what the freezer was asked to since the last call.
func (w leftoverWorld) asked(what, want string) {
	w.t.Helper()
	if got := strings.Join(w.f.orders(), " "); got != want {
		w.t.Errorf("%s: the freezer was asked to %q, want %q", what, got, want)
	}
	w.f.forget()
}

// archive holds the sandbox still, and cannot continue it.
func (w leftoverWorld) archive() {
	w.t.Helper()
	err := w.x.stopForSnapshot(w.t.Context(), func(context.Context) error {
		w.f.fail(errors.New("no"))
		return nil
	})
	if err != nil || w.x.isStill() {
		w.t.Errorf("%v; requests wait: %v", err, w.x.isStill())
	}
	w.asked("an archive", "freeze thaw")
}

// A thaw that fails after an archive, or after a freeze that failed, is tried again until
// it has worked, and then no more.
func TestThawIsTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newLeftoverWorld(t)
		w.archive()
		time.Sleep(2*leftoverEvery + leftoverEvery/2)
		w.asked("no luck", "thaw thaw")
		w.f.fail(nil)
		time.Sleep(10 * leftoverEvery)
		w.asked("and then", "thaw")

		w.f.fail(errors.New("no"))
		if err := w.x.freeze(t.Context(), 1); err == nil {
			t.Error("the freeze did not fail")
		}
		if err := w.x.stopForSnapshot(t.Context(), nil); err == nil {
			t.Error("the archive did not fail")
		}
		w.asked("failures", "freeze freeze")
		w.f.fail(nil)
		time.Sleep(10 * leftoverEvery)
		w.asked("after failures", "thaw")
	})
}

// While the sandbox is frozen nothing is continued; its end continues what was left.
func TestLeftoverOfTheFrozen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newLeftoverWorld(t)
		w.archive()
		w.f.fail(nil)
		if err := w.x.freeze(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*leftoverEvery + leftoverEvery/2)
		w.asked("frozen", "freeze refreeze refreeze refreeze")
		if err := w.x.unfreeze(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * leftoverEvery)
		w.asked("thawed", "thaw thaw")

		w.archive()
		w.x.close()
		time.Sleep(10 * leftoverEvery)
		w.asked("ended", "thaw")
	})
}
