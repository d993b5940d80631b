package files

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

type closer struct{ closed bool }

func (c *closer) Close() error { c.closed = true; return nil }

// The archive of a restore that is not asked for any more is closed, without another restore,
// and not while a try uses it.
func TestUnusedRestoreIsClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x, archive := &restores{byClaim: map[string]*restoring{}}, &closer{}
		r := x.get("c")
		r.archive = archive
		if x.get("c") != nil {
			t.Fatal("two tries have the restore")
		}
		r.mu.Unlock()
		after := func(d time.Duration, closed bool, forgotten bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			x.mu.Lock()
			defer x.mu.Unlock()
			if archive.closed != closed || (x.byClaim["c"] == nil) != forgotten {
				t.Fatalf("closed %v, want %v; the restores are %v", archive.closed, closed, x.byClaim)
			}
		}
		after(forgetAfter-time.Second, false, false)
		x.get("c") // a try that takes long
		after(2*forgetAfter, false, false)
		r.mu.Unlock()
		after(forgetAfter, true, true)
		x.get("c")
		x.forget("c") // its timer is stopped
	})
}
