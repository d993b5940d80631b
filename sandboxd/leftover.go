package sandboxd

import "time"

// leftoverEvery is the time between two tries to continue processes that were left stopped.
const leftoverEvery = time.Second

// continueLater tries each second to continue the processes that a failed freeze, or a
// failed thaw after an archive, has left stopped, until none is left. Requests are served
// meanwhile, since the other processes run. mu is held.
func (x *suspender) continueLater() {
	if x.leftover == nil && !x.closed {
		x.leftover = time.AfterFunc(leftoverEvery, x.continueLeftover)
	}
}

func (x *suspender) continueLeftover() {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.leftover == nil: // the process ends
		return
	case x.frozen || x.isStill(): // the thaw at the end of the freeze or the archive continues all processes
	case x.freezer.Thaw() == nil:
		x.leftover = nil
		return
	}
	x.leftover.Reset(leftoverEvery)
}
