package sandboxd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/sandboxd/access"
)

// Freezer stops and continues all that runs in the sandbox but sandboxd. Safe for
// concurrent use.
type Freezer interface {
	// Freeze returns when all is stopped, or an error when what it stopped is continued, as
	// far as that goes: Thaw tries the rest again.
	Freeze(ctx context.Context) error
	// Refreeze stops what runs in spite of a Freeze, and reports whether there was
	// something. After an error what is stopped stays so.
	Refreeze(ctx context.Context) (escaped bool, err error)
	// Thaw continues what Freeze stopped, as far as that goes; another one the rest.
	Thaw() error
	// Kill ends all without that anything runs on, as far as that goes.
	Kill() error
}

// holder keeps processes from starting. *process.Service does.
type holder interface {
	Hold(ctx context.Context) error
	Release()
}

const (
	// freezeTimeout bounds one freeze; gateways wait for two seconds.
	freezeTimeout = 1500 * time.Millisecond
	// refreezeEvery is the time between two looks at a frozen sandbox, and
	// refreezeTimeout bounds one: an unfreeze waits for it.
	refreezeEvery   = time.Second
	refreezeTimeout = 500 * time.Millisecond
	// maxEscapes is at how many looks in a row something may be found that runs.
	maxEscapes = 10
)

// rest freezes and unfreezes the sandbox, in this order:
//
//	running ─▶ held: no process starts, no command's deadline passes
//	        ─▶ deaf: requests are refused, and every client's connection is closed
//	        ─▶ frozen: every process is stopped, and each second again if it was continued
//
// and back in the opposite one. A step that fails is undone with those before it, so
// that the sandbox runs after a freeze that failed, and processes that could not be
// continued are tried again (continueLater); after an unfreeze that failed it stays deaf,
// and the next unfreeze tries again. mu serialises the orders.
//
// An order carries the Sandbox's generation. One that is older than the last order, or
// contradicts it, is refused: a freeze that was delayed must not stop a sandbox that was
// resumed since. The same freeze again looks at all processes again.
//
// If something runs at maxEscapes looks in a row, code in the sandbox continues itself
// again and again: sandboxd ends, and with it the container.
type rest struct {
	freezer     Freezer // nil: none
	processes   holder
	giveUp      context.CancelFunc // ends sandboxd; set before orders come
	connections connections
	deaf        atomic.Bool
	serving     atomic.Int64 // requests of clients that are carried out
	// waiting is closed when the sandbox goes on; nil unless it is held still.
	waiting atomic.Pointer[chan struct{}]
	log     func(format string, args ...any)

	mu         sync.Mutex // guards the rest
	generation int64      // of the last order
	wantFrozen bool       // the last order was to freeze
	frozen     bool
	filesRead  bool        // while frozen: the pod may be given up, so nothing may run on in it
	closed     bool        // the process ends: no order is taken
	looking    *time.Timer // while frozen: calls lookAgain
	escapes    int         // looks in a row that found something running
	leftover   *time.Timer // while something may be stopped that should run: calls continueLeftover
	// stopReading ends the reading of files of a frozen sandbox; nil if none is under way.
	stopReading context.CancelFunc
}

func newRest(freezer Freezer, processes holder, log io.Writer) *rest {
	return &rest{freezer: freezer, processes: processes, log: func(format string, args ...any) {
		_, _ = fmt.Fprintf(log, format, args...)
	}}
}

// take takes an order in, or says why it is refused. mu is held.
func (x *rest) take(generation int64, freeze bool) error {
	switch {
	case x.freezer == nil:
		return errNoFreezer
	case x.closed, generation < x.generation, generation == x.generation && freeze != x.wantFrozen:
		return errOlder
	case x.stilled():
		return errStill
	case x.stopReading != nil && !freeze:
		x.stopReading() // the order is given again
		return errStill
	}
	x.generation, x.wantFrozen = generation, freeze
	return nil
}

// freeze carries out one order. The context's connection is the one that stays open.
func (x *rest) freeze(ctx context.Context, generation int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.take(generation, true); err != nil {
		return err
	}
	connection := connectionOf(ctx)
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if x.frozen {
		_, err := x.freezer.Refreeze(ctx)
		return err
	}
	if err := x.processes.Hold(ctx); err != nil {
		return err
	}
	x.deaf.Store(true)
	x.connections.closeAllBut(connection)
	if err := x.freezer.Freeze(ctx); err != nil {
		x.processes.Release()
		x.deaf.Store(false)
		x.continueLater()
		return err
	}
	x.frozen, x.escapes = true, 0
	x.looking = time.AfterFunc(refreezeEvery, x.lookAgain)
	return nil
}

// lookAgain stops what has been continued, while the sandbox is frozen.
func (x *rest) lookAgain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.frozen {
		return
	}
	x.looking.Reset(refreezeEvery)
	if !x.wantFrozen { // its thaw has failed, and is tried again
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), refreezeTimeout)
	defer cancel()
	escaped, err := x.freezer.Refreeze(ctx)
	if err == nil && !escaped {
		x.escapes = 0
		return
	}
	if x.escapes++; x.escapes == maxEscapes {
		x.log("sandboxd: ends: although the sandbox is frozen something ran at each of the last %d looks: %v\n", maxEscapes, err)
		x.giveUp()
	}
}

// unfreeze carries out one order.
func (x *rest) unfreeze(_ context.Context, generation int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.take(generation, false); err != nil || !x.frozen {
		return err
	}
	return x.thaw()
}

// thaw continues all. mu is held.
func (x *rest) thaw() error {
	if err := x.freezer.Thaw(); err != nil {
		return err
	}
	x.markThawed()
	x.deaf.Store(false)
	return nil
}

// end continues all, as far as that goes, and takes no order any more. What is frozen and
// has had its files read is killed instead: the sandbox may go on from these files in
// another pod, and what a process did or answered here from now on would be lost.
func (x *rest) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.leftover != nil {
		x.leftover.Stop()
	}
	switch {
	case x.frozen && x.wantFrozen && x.filesRead:
		if err := x.freezer.Kill(); err != nil {
			x.log("sandboxd: ends: %v\n", err) // what is left is killed with the container
		}
	case x.frozen, x.stilled(), x.leftover != nil:
		_ = x.freezer.Thaw() // processes that stay stopped are killed
	}
	x.leftover = nil
	if x.stilled() {
		x.goOn()
	}
	if x.frozen {
		x.markThawed()
	}
}

// markThawed notes that the sandbox is not frozen any more. mu is held.
func (x *rest) markThawed() {
	x.frozen, x.filesRead = false, false
	x.looking.Stop()
	x.processes.Release()
}

// guard refuses clients' requests while the sandbox is frozen, and makes them wait while it
// is held still; calls of gateways pass. Gateways route no request to a frozen sandbox:
// the refused ones were on their way when it was frozen.
func (x *rest) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/init", "/freeze", "/unfreeze", "/archive", "/restore":
		default:
			x.wait(r)
			x.serving.Add(1) // before the look: what a freeze does not find here is refused
			defer x.serving.Add(-1)
			if x.deaf.Load() {
				// As gateways answer for a sandbox that does not run.
				access.Error(w, http.StatusBadGateway, "The sandbox was not found")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
