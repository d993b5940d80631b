package sandboxd

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// errStill: the sandbox is held still at the moment.
var errStill = errors.New("the sandbox's files are being read")

// still runs a function while nothing in the sandbox runs or is asked of it:
//
//	running ─▶ held: requests wait, no process starts, no command's deadline passes
//	        ─▶ still: every process is stopped; the function runs
//
// and back, also when the function fails or panics. What cannot be continued then is tried
// again until it goes on (continueLater). Unlike a freeze it closes no
// connection: it is short. What requests that had begun before write goes on. Orders are
// refused meanwhile, and so is a second one of these.
//
// What is frozen is still already, and stays so. There the function runs once no request
// that had begun before the freeze is carried out any more, for the pod may be given up
// then; and an unfreeze comes first: it cancels the function's context.
func (x *rest) still(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.awaitRequests(ctx)
	release, err := x.hold(ctx, cancel)
	if err != nil {
		return err
	}
	defer release()
	return do(ctx)
}

// requestsWait is how long an archive waits for the requests of a frozen sandbox to end.
// Their connections are closed, so that most end at once.
const requestsWait = time.Second

// awaitRequests waits a little until no request of a frozen sandbox is carried out.
func (x *rest) awaitRequests(ctx context.Context) {
	for end := time.Now().Add(requestsWait); x.deaf.Load() && x.serving.Load() > 0 && time.Now().Before(end); {
		select {
		case <-time.After(requestsWait / 100):
		case <-ctx.Done():
			return
		}
	}
}

func (x *rest) hold(ctx context.Context, cancel context.CancelFunc) (release func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.freezer == nil:
		return nil, errNoFreezer
	case x.closed, x.frozen && !x.wantFrozen:
		return nil, errOlder
	case x.stilled(), x.stopReading != nil, x.frozen && x.serving.Load() > 0:
		return nil, errStill
	case x.frozen:
		x.stopReading, x.filesRead = cancel, true
		return func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.stopReading = nil
		}, nil
	}
	over := make(chan struct{})
	x.waiting.Store(&over)
	freezing, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if err := x.processes.Hold(freezing); err != nil {
		x.letIn()
		return nil, err
	}
	if err := x.freezer.Freeze(freezing); err != nil {
		x.goOn()
		x.continueLater()
		return nil, err
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if !x.stilled() { // the process ends
			return
		}
		if err := x.freezer.Thaw(); err != nil {
			x.log("sandboxd: /archive: going on, which is tried again: %v\n", err)
			x.continueLater()
		}
		x.goOn()
	}, nil
}

// stilled reports whether the sandbox is held still. mu is held.
func (x *rest) stilled() bool { return x.waiting.Load() != nil }

// goOn lets processes start, and the requests that wait go on. mu is held.
func (x *rest) goOn() {
	x.processes.Release()
	x.letIn()
}

// letIn lets the requests that wait go on. mu is held.
func (x *rest) letIn() {
	if over := x.waiting.Swap(nil); over != nil {
		close(*over)
	}
}

// wait lets a request wait while the sandbox is held still.
func (x *rest) wait(r *http.Request) {
	if over := x.waiting.Load(); over != nil {
		select {
		case <-*over:
		case <-r.Context().Done():
		}
	}
}
