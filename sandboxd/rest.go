package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/process"
)

// Freezer stops and continues all that runs in the sandbox but sandboxd. Safe for
// concurrent use.
type Freezer interface {
	// Freeze returns when all is stopped, or an error when nothing is left stopped.
	Freeze(ctx context.Context) error
	// Thaw continues what Freeze stopped.
	Thaw() error
}

// freezeTimeout bounds one freeze; gateways wait for two seconds.
const freezeTimeout = 1500 * time.Millisecond

// What an order of the control plane fails with.
var (
	errNoFreezer = errors.New("this sandbox cannot be frozen: sandboxd is not below its own first process of a container")
	errOlder     = errors.New("a newer order was given already")
	errNotInit   = errors.New("the sandbox is not initialised")
)

// rest freezes and unfreezes the sandbox, in this order:
//
//	awake ─▶ deaf: requests are refused, and every client's connection is closed
//	      ─▶ held: no process starts, no command's deadline passes
//	      ─▶ frozen: every process is stopped
//
// and back in the opposite one. A step that fails is undone with those before it, so
// that the sandbox is awake after a freeze that failed; after an unfreeze that failed it
// stays deaf, and the next one tries again. mu serialises the orders.
//
// Orders carry the generation of what they carry out. One that is older than the last,
// or contradicts it, is refused: a freeze that was delayed must not stop a sandbox that
// was resumed since. The same one again changes nothing.
type rest struct {
	freezer     Freezer // nil: none
	processes   *process.Service
	connections connections
	deaf        atomic.Bool
	// waiting is closed when the sandbox goes on; nil unless it is held still.
	waiting atomic.Pointer[chan struct{}]
	log     func(format string, args ...any)

	mu         sync.Mutex // guards the rest
	generation int64      // of the last order
	wantFrozen bool       // what that was
	frozen     bool
	closed     bool // the process ends: no order is taken
}

func newRest(freezer Freezer, processes *process.Service, log io.Writer) *rest {
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
	}
	x.generation, x.wantFrozen = generation, freeze
	return nil
}

// freeze carries out one order. The context's connection is the one that stays open.
func (x *rest) freeze(ctx context.Context, generation int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.take(generation, true); err != nil || x.frozen {
		return err
	}
	x.deaf.Store(true)
	x.connections.closeAllBut(connectionOf(ctx))
	x.processes.Hold()
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if err := x.freezer.Freeze(ctx); err != nil {
		x.processes.Release()
		x.deaf.Store(false)
		return err
	}
	x.frozen = true
	return nil
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
	x.frozen = false
	x.processes.Release()
	x.deaf.Store(false)
	return nil
}

// end continues all, as far as that goes, and takes no order any more.
func (x *rest) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.stilled() {
		_ = x.freezer.Thaw()
		x.goOn()
	}
	if x.frozen {
		_ = x.freezer.Thaw() // what is left stopped is killed
		x.frozen = false
		x.processes.Release()
	}
}

// guard refuses, while the sandbox is frozen, everything but what its control plane
// asks, and lets it wait while the sandbox is held still. Gateways send nothing to a frozen sandbox; this is for what was on its way.
func (x *rest) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/init", "/freeze", "/unfreeze", "/archive", "/restore":
		default:
			x.wait(r)
			if x.deaf.Load() {
				// As gateways answer for a sandbox that does not run.
				access.Error(w, http.StatusBadGateway, "The sandbox was not found")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// order serves an order of the control plane. Before /init nothing runs: a freeze is
// refused then (412), and an unfreeze is remembered alone (202).
func (s *Server) order(caller *caller, name string, carryOut func(context.Context, int64) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		generation, ok := caller.Order(w, r, name)
		if !ok {
			return
		}
		initialised := caller.Initialised()
		err := errNotInit
		if initialised || name != "freeze" {
			err = carryOut(r.Context(), generation)
		}
		switch {
		case err == nil && !initialised:
			w.WriteHeader(http.StatusAccepted)
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, errNotInit):
			access.Error(w, http.StatusPreconditionFailed, err.Error())
		case errors.Is(err, errNoFreezer):
			access.Error(w, http.StatusNotImplemented, err.Error())
		case errors.Is(err, errOlder):
			access.Error(w, http.StatusConflict, err.Error())
		case errors.Is(err, errStill):
			access.Error(w, http.StatusLocked, err.Error())
		default:
			_, _ = fmt.Fprintf(s.options.Log, "sandboxd: /%s: %v\n", name, err)
			access.Error(w, http.StatusInternalServerError, err.Error())
		}
	}
}
