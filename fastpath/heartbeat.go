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
	// askTimeout bounds a request for Envoy's version. No heartbeat renews trust meanwhile.
	askTimeout = time.Second
	// askAgain is the delay after a request for Envoy's version that failed.
	askAgain = time.Second
)

// trust says until when Envoy may answer. mu is held from reading the lease until trust is
// written. Distrust takes mu after the lease is lost, so that no renewal comes after it.
type trust struct {
	mu      sync.Mutex
	control *control
	closed  bool // trust is never given again
	// term is the number of the Envoy that may be trusted, because its version is a tested
	// one; 0 if there is none. Each Envoy that takes the table over has the next number. Only
	// the heartbeat uses it.
	term uint64
	// refused is the number of an Envoy whose version is not a tested one or is not
	// known. That Envoy is asked again at askAt.
	refused uint64
	askAt   time.Time
}

// Start runs the heartbeat until ctx ends: every 250 ms it renews trust, moves the marks of
// use into the routes' uses, and frees entries. Then it ends trust for good. Call it once,
// after Settle.
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

// Distrust makes every reading that begins from now on answer nothing, until the next
// heartbeat that finds a lease; if final, for ever. Call it when this gateway has lost the
// right to route, and then call Wait.
func (t *Table) Distrust(final bool) {
	t.trust.mu.Lock()
	defer t.trust.mu.Unlock()
	t.trust.closed = t.trust.closed || final
	t.control.distrust()
}

func (t *Table) beat(ctx context.Context) {
	t.checkEnvoy(ctx)
	t.renew()
	t.Fold()
	t.countResults()
	t.mu.Lock()
	retired := len(t.retired) > 0
	t.mu.Unlock()
	if retired {
		brief, cancel := context.WithTimeout(ctx, beatEvery/2)
		defer cancel()
		_ = t.freeRetired(brief) // the next beat tries again
	}
}

// renew renews trust for as long as the lease lasts, at most longestTrust. The clocks are
// read before the lease, so that a delay in between shortens trust.
func (t *Table) renew() {
	t.trust.mu.Lock()
	defer t.trust.mu.Unlock()
	boot, wall := nanos(unix.CLOCK_BOOTTIME), nanos(unix.CLOCK_REALTIME)
	left := min(longestTrust, t.o.Lease())
	if left <= 0 || t.trust.term == 0 || t.trust.closed || boot == 0 || wall == 0 {
		t.control.distrust()
		return
	}
	t.control.store(offTrustTerm, t.trust.term)
	t.control.store(offTrustWall, wall+uint64(left))
	t.control.store(offTrustBoot, boot+uint64(left))
}

// checkEnvoy asks an Envoy that has newly taken the table over for its version. Trust is
// given for its number only: an Envoy that takes the table over meanwhile gets another one.
func (t *Table) checkEnvoy(ctx context.Context) {
	term := t.control.load(offTerms)
	if term == t.trust.term || term == t.trust.refused && time.Now().Before(t.trust.askAt) {
		return
	}
	t.trust.term = 0
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	version, err := t.o.EnvoyVersion(ctx)
	first := term != t.trust.refused
	switch {
	case err != nil:
		if first && ctx.Err() == nil {
			t.o.Log.Warn("Envoy's version is unknown, so it answers nothing from the route table yet", "error", err)
		}
		t.trust.refused, t.trust.askAt = term, time.Now().Add(askAgain)
	case !slices.Contains(t.o.Tested, version):
		t.o.Log.Warn("the fast path was not tested with this Envoy, so ExtProc answers all requests", "version", version, "tested", t.o.Tested)
		t.trust.refused, t.trust.askAt = term, time.Now().Add(24*time.Hour)
	default:
		t.o.Log.Info("Envoy answers hits from the route table", "version", version)
		t.trust.term = term
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
