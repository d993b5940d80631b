package fastpath

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	beatEvery = 250 * time.Millisecond
	// askTimeout bounds the question for Envoy's version: trust ends meanwhile.
	askTimeout = time.Second
	// askAgain is the pause after an Envoy that could not be asked.
	askAgain = time.Second
)

// trust says until when Envoy may answer. mu is held from the look at the lease until
// trust is written, so that a loss, which takes mu afterwards, has the last word.
type trust struct {
	mu      sync.Mutex
	control *control
	closed  bool // nothing is trusted any more
	// claim is the Envoy whose version was tested; 0: none. The heartbeat's alone.
	claim uint64
	// refused is one whose version was not, or could not be asked until again.
	refused uint64
	again   time.Time
}

// Start keeps trust alive, folds marks and frees entries until ctx ends; then nothing
// is trusted any more. Call it once, after Settle.
func (t *Table) Start(ctx context.Context) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	defer t.Distrust(true)
	for {
		t.beat(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Distrust makes every flight that begins from now on answer nothing, until the next
// heartbeat that finds a lease; for good if it is final. Call it once the right to
// route is gone, and then Wait.
func (t *Table) Distrust(final bool) {
	t.trust.mu.Lock()
	defer t.trust.mu.Unlock()
	t.trust.closed = t.trust.closed || final
	t.control.distrust()
}

func (t *Table) beat(ctx context.Context) {
	t.meet(ctx)
	t.renew()
	t.Fold()
	t.count()
	t.mu.Lock()
	resting := len(t.resting) > 0
	t.mu.Unlock()
	if resting {
		brief, cancel := context.WithTimeout(ctx, beatEvery/2)
		defer cancel()
		_ = t.reclaim(brief) // the next beat tries again
	}
}

// renew gives trust for as long as the lease lasts, at most longestTrust. The clocks
// are read before the lease, so that no delay in between adds to it.
func (t *Table) renew() {
	t.trust.mu.Lock()
	defer t.trust.mu.Unlock()
	boot, wall := nanos(unix.CLOCK_BOOTTIME), nanos(unix.CLOCK_REALTIME)
	left := min(longestTrust, t.o.Lease())
	if left <= 0 || t.trust.claim == 0 || t.trust.closed || boot == 0 || wall == 0 {
		t.control.distrust()
		return
	}
	t.control.store(offTrustClaim, t.trust.claim)
	t.control.store(offTrustWall, wall+uint64(left))
	t.control.store(offTrustBoot, boot+uint64(left))
}

// meet asks an Envoy that is new here for its version. Trust is for the Envoy that
// was asked: one that claims the table meanwhile has another number.
func (t *Table) meet(ctx context.Context) {
	claim := t.control.load(offClaims)
	if claim == t.trust.claim || claim == t.trust.refused && time.Now().Before(t.trust.again) {
		return
	}
	t.trust.claim = 0
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	version, err := t.o.EnvoyVersion(ctx)
	first := claim != t.trust.refused
	switch {
	case err != nil:
		if first && ctx.Err() == nil {
			t.o.Log.Warn("Envoy's version is unknown, so it answers nothing from the route table yet", "error", err)
		}
		t.trust.refused, t.trust.again = claim, time.Now().Add(askAgain)
	case !slices.Contains(t.o.Tested, version):
		t.o.Log.Warn("the fast path was not tested with this Envoy, so ExtProc answers all", "version", version, "tested", t.o.Tested)
		t.trust.refused, t.trust.again = claim, time.Now().Add(24*time.Hour)
	default:
		t.o.Log.Info("Envoy answers hits from the route table", "version", version)
		t.trust.claim = claim
	}
}

// nanos reads a clock; 0 if it cannot be read.
func nanos(clock int32) uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}

func nanosNow() uint64 { return nanos(unix.CLOCK_BOOTTIME) }
