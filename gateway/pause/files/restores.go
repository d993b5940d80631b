package files

import (
	"io"
	"sync"
	"time"

	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// forgetAfter is how long the archive of a restore stays open after the last call of Ready
// for it.
const forgetAfter = time.Minute

// restores are the restores under way at this gateway, by claim.
type restores struct {
	mu      sync.Mutex
	byClaim map[string]*restoring // guarded by mu
}

// restoring is the restore for one claim. A try holds its mutex, which guards all fields
// but those that say otherwise; meanwhile other requests for the sandbox get errUnderWay and
// try again.
type restoring struct {
	mu      sync.Mutex
	unused  *time.Timer // closes it if get is not called for forgetAfter; guarded by restores.mu
	begun   time.Time   // set when it is made
	archive io.Closer   // nil until it is open
	env     map[string]string
	parts   *sandboxdclient.Restoring
	done    bool // all files are restored
}

// get returns the restore for a claim, and makes it if there is none. The caller holds its
// mutex, and unlocks it when its try ends; nil while another try holds it. A restore for which
// get is not called within forgetAfter is closed and forgotten.
func (x *restores) get(claim string) *restoring {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.byClaim[claim]
	if t == nil {
		t = &restoring{begun: time.Now()}
		t.unused = time.AfterFunc(forgetAfter, func() { x.closeUnused(claim, t) })
		x.byClaim[claim] = t
	} else {
		t.unused.Reset(forgetAfter)
	}
	if !t.mu.TryLock() {
		return nil
	}
	return t
}

// closeUnused closes and forgets a restore; while a try holds it, it sets its timer again.
func (x *restores) closeUnused(claim string, t *restoring) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.byClaim[claim] != t:
	case !t.mu.TryLock():
		t.unused.Reset(forgetAfter)
	default:
		t.close()
		t.mu.Unlock()
		delete(x.byClaim, claim)
	}
}

// forget is called by the try that holds the restore, so that no other try has it.
func (x *restores) forget(claim string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.byClaim[claim]; t != nil {
		t.unused.Stop()
		delete(x.byClaim, claim)
	}
}

func (t *restoring) close() {
	if t.archive != nil {
		_ = t.archive.Close() // it was only read
	}
	t.archive, t.env, t.parts, t.done = nil, nil, nil, false
}
