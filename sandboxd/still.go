package sandboxd

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// errStill: the sandbox is held still at the moment.
var errStill = errors.New("the sandbox's files are being read")

// stopForSnapshot runs a function while all processes of the sandbox are stopped and new requests
// wait:
//
//	running ─▶ held: requests wait, no process starts, no command's deadline passes
//	        ─▶ still: every process is stopped; the function runs
//
// and back, also when the function fails or panics. continueLater tries again to continue
// the processes that could not be continued. Unlike a freeze stopForSnapshot closes no connection,
// since it is short; a request that had begun before may go on writing. Orders are refused
// meanwhile, and so is a second call of stopForSnapshot.
//
// A frozen sandbox is still already, and stays so. Then the function runs only once no
// request that had begun before the freeze is being served, because the pod may be given up
// afterwards; and an unfreeze cancels the function's context, so that it need not wait.
func (x *suspender) stopForSnapshot(ctx context.Context, do func(context.Context) error) error {
	return x.hold(ctx, false, do)
}

// holdFrozen is stopForSnapshot of a frozen sandbox alone; errOlder if it runs: it was resumed
// before the call came, and must not be stopped again.
func (x *suspender) holdFrozen(ctx context.Context, do func(context.Context) error) error {
	return x.hold(ctx, true, do)
}

func (x *suspender) hold(ctx context.Context, frozenAlone bool, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.awaitRequests(ctx)
	end, err := x.beginStill(ctx, cancel, frozenAlone)
	if err != nil {
		return err
	}
	defer end()
	return do(ctx)
}

// requestsWait is how long an archive waits for the requests to a frozen sandbox to end.
// They are cancelled and their connections closed, so that most end at once.
const requestsWait = time.Second

// awaitRequests waits until no request to a frozen sandbox is being served, requestsWait at
// most.
func (x *suspender) awaitRequests(ctx context.Context) {
	for end := time.Now().Add(requestsWait); x.refusing.Load() && x.requests.count() > 0 && time.Now().Before(end); {
		select {
		case <-time.After(requestsWait / 100):
		case <-ctx.Done():
			return
		}
	}
}

// beginStill stops the sandbox as hold says, and returns the function that continues it.
// For a frozen sandbox it only notes that the files are read; an unfreeze calls cancel then.
func (x *suspender) beginStill(ctx context.Context, cancel context.CancelFunc, frozenAlone bool) (end func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.freezer == nil:
		return nil, errNoFreezer
	case x.closed, x.frozen && !x.wantFrozen, !x.frozen && frozenAlone:
		return nil, errOlder
	case x.isStill(), x.stopReading != nil, x.frozen && x.requests.count() > 0:
		return nil, errStill
	case x.frozen:
		x.stopReading, x.filesRead = cancel, true
		return func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.stopReading = nil
		}, nil
	}
	done := make(chan struct{})
	x.stillOver.Store(&done)
	freezing, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if err := x.processes.Hold(freezing); err != nil {
		x.admitWaiting()
		return nil, err
	}
	if err := x.freezer.Freeze(freezing); err != nil {
		x.endStill()
		x.continueLater()
		return nil, err
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if !x.isStill() { // close has continued the sandbox already
			return
		}
		if err := x.freezer.Thaw(); err != nil {
			x.log("sandboxd: /archive: continuing the processes, which is tried again: %v\n", err)
			x.continueLater()
		}
		x.endStill()
	}, nil
}

// isStill reports whether the sandbox is held still. mu is held.
func (x *suspender) isStill() bool { return x.stillOver.Load() != nil }

// endStill lets processes start again and waiting requests continue. mu is held.
func (x *suspender) endStill() {
	x.processes.Continue()
	x.admitWaiting()
}

// admitWaiting lets waiting requests continue. mu is held.
func (x *suspender) admitWaiting() {
	if done := x.stillOver.Swap(nil); done != nil {
		close(*done)
	}
}

// waitWhileStill makes a request wait while the sandbox is held still.
func (x *suspender) waitWhileStill(r *http.Request) {
	if done := x.stillOver.Load(); done != nil {
		select {
		case <-*done:
		case <-r.Context().Done():
		}
	}
}
