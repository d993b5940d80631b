package sandboxd

import "time"

// leftoverEvery is the time between two tries to continue what was left stopped.
const leftoverEvery = time.Second

// continueLater has what was left stopped continued, each second until nothing is: by a
// thaw that no order repeats, or by a freeze that failed. Requests are served meanwhile:
// most of the sandbox runs. mu is held.
func (x *rest) continueLater() {
	if x.leftover == nil && !x.closed {
		x.leftover = time.AfterFunc(leftoverEvery, x.continueLeftover)
	}
}

func (x *rest) continueLeftover() {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.leftover == nil: // the process ends
		return
	case x.frozen || x.stilled(): // the thaw at the end of that continues all
	case x.freezer.Thaw() == nil:
		x.leftover = nil
		return
	}
	x.leftover.Reset(leftoverEvery)
}
