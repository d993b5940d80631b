package controlplane

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	firstRetry = 100 * time.Millisecond
	// A gateway whose holder is overwritten again and again waits this long at most:
	// it serves no request meanwhile, and the process that overwrites it waits (see revocations).
	maxRejoinDelay = 2 * time.Second
	// maxRetry bounds the pause between two tries to write the lease, to renew it, or to
	// list once it is written: a gateway answers 503 until it has listed under its lease.
	maxRetry = 2 * time.Second
)

// Start joins and keeps the lease until the context ends or Leave is called,
// and then returns nil. The lease is left as it is, and Held stays true for the
// rest of its time: call Leave for a clean stop. Call it once, when the Server
// listens.
func (m *Membership) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.left || m.done != nil {
		m.mu.Unlock()
		return errors.New("gateway membership: started twice, or after it left")
	}
	m.cancel, m.done = cancel, make(chan struct{})
	m.mu.Unlock()
	defer close(m.done)

	for losses := 0; ; losses++ {
		if m.reached.Swap(false) {
			losses = min(losses, 1)
		}
		m.waitForController(ctx, rejoinDelay(losses))
		until, ok := m.join(ctx)
		if !ok {
			return nil
		}
		why := m.keep(ctx, until)
		if ctx.Err() != nil {
			return nil
		}
		m.o.Log.Warn("gateway lease lost", "lease", m.o.Name, "holder", m.Holder(), "reason", why)
		m.o.Metrics.losses.Inc()
		if !m.lose(ctx) {
			return nil
		}
	}
}

// rejoinDelay is how long to wait before joining, after that many losses without a call of
// a controller in between: nothing at first, then 1 s, then 2 s.
func rejoinDelay(losses int) time.Duration {
	if losses < 2 {
		return 0
	}
	return min(time.Second<<min(losses-2, 16), maxRejoinDelay)
}

// waitForController waits for d, or less if a controller calls meanwhile.
func (m *Membership) waitForController(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-m.called: // a call from before this wait
	default:
	}
	backoff.SleepOrWake(ctx, d, m.called)
}

// join writes the lease, trying until it succeeds; false when the context
// ended. The lease counts from before the write was sent.
func (m *Membership) join(ctx context.Context) (until instant, ok bool) {
	for delays := backoff.Doubling(firstRetry, min(m.o.RenewEvery, maxRetry)); ; {
		sent := m.now()
		err := m.acquire(ctx)
		if err == nil {
			m.o.Log.Info("gateway lease written", "lease", m.o.Name, "holder", m.Holder())
			return sent.add(m.o.LeaseDuration), true
		}
		if ctx.Err() == nil {
			m.o.Metrics.failures.Inc()
			m.o.Log.Warn("writing the gateway lease failed", "lease", m.o.Name, "error", err)
		}
		if !backoff.Sleep(ctx, delays.Step()) {
			return instant{}, false
		}
	}
}

// keep renews the lease and runs OnJoin until the lease is lost (it says why)
// or the context ends. OnJoin has returned when keep returns.
func (m *Membership) keep(ctx context.Context, until instant) (why error) {
	term := &term{m: m, until: until}
	joining, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { term.listThenServe(joining) })
	defer running.Wait()
	defer stop()

	wait := m.o.RenewEvery
	for {
		left := m.now().until(until)
		if !backoff.Sleep(ctx, min(wait, max(left, 0))) {
			return ctx.Err()
		}
		failpoint.Hit("controlplane/renew")
		sent := m.now()
		if !sent.before(until) {
			return errExpired
		}
		// A renewal that is answered after the lease is up would be of no use.
		err := m.renew(ctx, sent.until(until))
		switch {
		case errors.Is(err, errLost), errors.Is(err, errRewound):
			return err
		case err != nil:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.o.Metrics.failures.Inc()
			m.o.Log.Warn("renewing the gateway lease failed", "lease", m.o.Name, "error", err)
			wait = min(m.o.RenewEvery, maxRetry)
		default:
			m.o.Metrics.renewals.Inc()
			if until = sent.add(m.o.LeaseDuration); !term.extend(until) {
				return errExpired
			}
			wait = m.o.RenewEvery
		}
	}
}

// lose takes the right to route back and makes sure that no route is left; then
// the gateway may join under the next epoch. False when the context ended.
func (m *Membership) lose(ctx context.Context) bool {
	m.grant.Store(nil)
	for delays := backoff.Doubling(firstRetry, m.o.RenewEvery); ; {
		err := m.o.OnLost(ctx)
		if err == nil {
			m.epoch.Add(1)
			return true
		}
		m.o.Log.Warn("dropping routes after a lost lease failed", "error", err)
		if !backoff.Sleep(ctx, delays.Step()) {
			return false
		}
	}
}

// term is the time from one write of the lease to its loss.
type term struct {
	m       *Membership
	mu      sync.Mutex
	until   instant // guarded by mu
	serving bool    // guarded by mu; OnJoin has returned nil
}

// extend notes a confirmed renewal. False: the lease was up before, and the
// controller may have counted it so; it must be joined anew.
func (t *term) extend(until instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.m.now().before(t.until) {
		return false
	}
	t.until = until
	t.publish()
	return true
}

// publish lets Held be true. mu is held.
func (t *term) publish() {
	if t.serving {
		t.m.grant.Store(&grant{until: t.until})
	}
}

func (t *term) listThenServe(ctx context.Context) {
	for delays := backoff.Doubling(firstRetry, min(t.m.o.RenewEvery, maxRetry)); ; {
		err := t.m.o.OnJoin(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.serving = true
			t.publish()
			return
		}
		t.m.o.Log.Warn("listing after the gateway lease was written failed", "error", err)
		if !backoff.Sleep(ctx, delays.Step()) {
			return
		}
	}
}
