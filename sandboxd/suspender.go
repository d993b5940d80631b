package sandboxd

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/sandboxd/access"
)

// Freezer stops and continues all processes of the sandbox except sandboxd's. Safe for
// concurrent use.
type Freezer interface {
	// Freeze returns nil when all processes are stopped. Before it returns an error it
	// continues those that it stopped; Thaw tries again to continue those that it could not.
	Freeze(ctx context.Context) error
	// Refreeze stops processes that run although they were frozen, and reports whether there
	// were any, or whether one has run since the call before. After an error stopped
	// processes stay stopped.
	Refreeze(ctx context.Context) (escaped bool, err error)
	// Thaw continues the processes that Freeze stopped. After an error a further Thaw tries
	// again to continue those that are left.
	Thaw() error
	// Kill kills all processes; no stopped process runs any code before it ends.
	Kill() error
}

// holder keeps processes from starting. *process.Service implements it.
type holder interface {
	Hold(ctx context.Context) error
	Continue()
}

const (
	// freezeTimeout bounds one freeze; gateways wait for two seconds.
	freezeTimeout = 1500 * time.Millisecond
	// refreezeEvery is the time between two calls of Refreeze for a frozen sandbox, and
	// refreezeTimeout bounds each: an unfreeze waits for it.
	refreezeEvery   = time.Second
	refreezeTimeout = 500 * time.Millisecond
	// maxEscapes is how many of the last 64 calls of Refreeze, which are about a minute's,
	// must find a process that runs, or has run since, for sandboxd to end.
	maxEscapes = 10
)

// suspender freezes and unfreezes the sandbox, and holds it still while its files are read
// (still.go). A freeze takes these steps:
//
//	running ─▶ held: no process starts, no command's deadline passes
//	        ─▶ refusing: requests are refused; those that had begun are cancelled, and every
//	           client's connection is closed
//	        ─▶ frozen: every process is stopped, and each second again if it was continued
//
// and an unfreeze takes them back in the opposite order. If a step of a freeze fails, it and
// the steps before it are undone, so that the sandbox runs; continueLater tries again to
// continue the processes that could not be continued. If an unfreeze fails, the sandbox
// still refuses requests, and the next unfreeze tries again. mu serialises the orders.
//
// The number of an order is the Sandbox's spec.pauseOrder. An order that is older than the
// last one, or contradicts it, is refused: a freeze that was delayed must not stop a sandbox
// that was resumed since. The same freeze again stops processes that run.
//
// If maxEscapes of 64 calls of Refreeze find a process that runs, or has run since, code in
// the sandbox continues itself again and again: sandboxd ends, and with it the container.
type suspender struct {
	freezer     Freezer // nil: the sandbox cannot be frozen
	processes   holder
	giveUp      context.CancelFunc // ends sandboxd; set before the first order
	connections connections
	refusing    atomic.Bool // clients' requests are refused
	requests    requests
	// stillOver is closed when the sandbox is not held still any more; nil unless it is.
	stillOver atomic.Pointer[chan struct{}]
	log       func(format string, args ...any)

	mu         sync.Mutex // guards the rest
	number     int64      // of the last order
	wantFrozen bool       // the last order was to freeze
	frozen     bool
	filesRead  bool        // while frozen: the files were read, so the pod may be given up and nothing may run in it again
	closed     bool        // sandboxd is ending: orders are refused
	recheck    *time.Timer // while frozen: calls stopAgain
	escapes    uint64      // a bit for each of the last 64 calls of Refreeze: it found a process that runs, or has run since
	leftover   *time.Timer // while processes may be stopped that should run: calls continueLeftover
	// stopReading ends the reading of files of a frozen sandbox; nil if none is under way.
	stopReading context.CancelFunc
}

func newSuspender(freezer Freezer, processes holder, log io.Writer) *suspender {
	return &suspender{freezer: freezer, processes: processes, log: func(format string, args ...any) {
		_, _ = fmt.Fprintf(log, format, args...)
	}}
}

// accept notes an order as the last one, or returns the error with which it is refused. mu
// is held.
func (x *suspender) accept(number int64, freeze bool) error {
	switch {
	case x.freezer == nil:
		return errNoFreezer
	case x.closed, number < x.number, number == x.number && freeze != x.wantFrozen:
		return errOlder
	case x.isStill():
		return errStill
	case x.stopReading != nil && !freeze:
		x.stopReading() // the gateway repeats the order
		return errStill
	}
	x.number, x.wantFrozen = number, freeze
	return nil
}

// freeze carries out an order to freeze. It closes all connections of clients except the one
// in ctx, on which the order came.
func (x *suspender) freeze(ctx context.Context, number int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.accept(number, true); err != nil {
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
	x.refusing.Store(true)
	x.connections.closeAllBut(connection)
	// net/http cancels a request whose connection is closed only once it has read the body.
	// After the closing, so that no client gets an answer that says so.
	x.requests.cancel()
	if err := x.freezer.Freeze(ctx); err != nil {
		x.processes.Continue()
		x.refusing.Store(false)
		x.continueLater()
		return err
	}
	x.frozen, x.escapes = true, 0
	x.recheck = time.AfterFunc(refreezeEvery, x.stopAgain)
	return nil
}

// stopAgain stops processes that were continued while the sandbox is frozen.
func (x *suspender) stopAgain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.frozen {
		return
	}
	x.recheck.Reset(refreezeEvery)
	if !x.wantFrozen { // an unfreeze has failed, and will be repeated
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), refreezeTimeout)
	defer cancel()
	escaped, err := x.freezer.Refreeze(ctx)
	x.escapes <<= 1
	if err == nil && !escaped {
		return
	}
	if x.escapes |= 1; bits.OnesCount64(x.escapes) == maxEscapes {
		x.giveUp() // before the log, whose write may block
		x.log("sandboxd: ends: although the sandbox is frozen, a process ran at %d of the last 64 checks: %v\n", maxEscapes, err)
	}
}

// unfreeze carries out an order to unfreeze.
func (x *suspender) unfreeze(_ context.Context, number int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.accept(number, false); err != nil || !x.frozen {
		return err
	}
	return x.thaw()
}

// thaw continues all processes and serves requests again. mu is held.
func (x *suspender) thaw() error {
	if err := x.freezer.Thaw(); err != nil {
		return err
	}
	x.markThawed()
	x.refusing.Store(false)
	return nil
}

// close continues all processes that it can, and refuses further orders. If the sandbox is
// frozen and its files were read, close kills the processes instead: the sandbox may go on
// from these files in another pod, and whatever a process did here from now on would be
// lost.
func (x *suspender) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.leftover != nil {
		x.leftover.Stop()
	}
	switch {
	case x.frozen && x.wantFrozen && x.filesRead:
		if err := x.freezer.Kill(); err != nil {
			x.log("sandboxd: ends: %v\n", err) // the end of the container kills the other processes
		}
	case x.frozen, x.isStill(), x.leftover != nil:
		_ = x.freezer.Thaw() // processes that stay stopped are killed later
	}
	x.leftover = nil
	if x.isStill() {
		x.endStill()
	}
	if x.frozen {
		x.markThawed()
	}
}

// markThawed notes that the sandbox is not frozen any more. mu is held.
func (x *suspender) markThawed() {
	x.frozen, x.filesRead = false, false
	x.recheck.Stop()
	x.processes.Continue()
}

// guard refuses clients' requests while the sandbox is frozen, and makes them wait while it
// is held still. It lets calls of gateways through. Gateways route no request to a frozen
// sandbox: the refused requests were on their way when it was frozen.
func (x *suspender) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/init", "/freeze", "/unfreeze", "/archive", "/restore":
		default:
			x.waitWhileStill(r)
			// Before refusing is read: a request that a freeze does not find here is refused.
			counted, end := x.requests.begin(r)
			defer end()
			r = counted
			if x.refusing.Load() {
				// Gateways answer the same for a sandbox that does not run.
				access.Error(w, http.StatusBadGateway, "The sandbox was not found")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
