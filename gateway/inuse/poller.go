package inuse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlane/sandlane/routecache"
)

// Claims says which claim an address belongs to. The index satisfies it.
type Claims interface {
	// RangeClaims calls f for each claim with its pod's address until f returns
	// false.
	RangeClaims(f func(addr netip.Addr, id, claim string) bool)
}

// PollerOptions configure an EnvoyPoller.
type PollerOptions struct {
	// Registry is stamped. Required.
	Registry *Registry
	// Claims maps addresses to claims. Required.
	Claims Claims
	// AdminSocket is the path of Envoy's admin socket. Required.
	AdminSocket string
	// Cluster is Envoy's name of the sandboxes' cluster. Empty means "sandbox".
	Cluster string
	// MaxOpen is how many requests a sandbox may have open: one that has as many at a
	// poll is full until a poll shows fewer, or Envoy cannot be read. 0 is no limit.
	MaxOpen uint64
	// Filled is called for each sandbox that is full, after its stamp says so. May be
	// nil.
	Filled func(id string)
	// Tick is the time between polls: at most a quarter of the shortest idle
	// timeout. 0 means a second.
	Tick time.Duration
	// Clock makes the ticks. Nil means the real one.
	Clock clock.WithTicker
	// Log is told when Envoy becomes unreadable, and readable again. Nil means
	// slog.Default().
	Log *slog.Logger
}

// EnvoyPoller stamps what Envoy has open: each tick what is open then, and what
// was open at the tick before, which may have ended just after it.
type EnvoyPoller struct {
	o       PollerOptions
	http    *http.Client
	metrics *metrics
	// polling is held during a poll: ticks and Refresh.
	polling sync.Mutex
	// before are the stamps of what was open at the last tick that read Envoy.
	// failing says that the last tick could not. Guarded by polling.
	before  []*routecache.Stamp
	failing bool
	// full are the stamps of sandboxes that had MaxOpen open then. Guarded by polling.
	full []*routecache.Stamp
}

// NewEnvoyPoller returns a poller that has not read anything.
func NewEnvoyPoller(o PollerOptions) *EnvoyPoller {
	if o.Cluster == "" {
		o.Cluster = "sandbox"
	}
	if o.Tick <= 0 {
		o.Tick = time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", o.AdminSocket)
	}
	return &EnvoyPoller{o: o, metrics: newMetrics(),
		http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Start polls at once and then each tick until the context ends, and returns
// nil. From then on reports are not Known. Call once.
func (p *EnvoyPoller) Start(ctx context.Context) error {
	defer p.o.Registry.setKnown(0)
	tick := p.o.Clock.NewTicker(p.o.Tick)
	defer tick.Stop()
	for {
		_ = p.Refresh(ctx) // it logs its error itself
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// NeedLeaderElection makes it run in every gateway.
func (p *EnvoyPoller) NeedLeaderElection() bool { return false }

// Refresh is one tick, or a poll in between: it returns nil once what Envoy has
// open is stamped. Envoy has one tick to answer; the counts hold for two more, in
// case this process is late itself.
func (p *EnvoyPoller) Refresh(ctx context.Context) error {
	p.polling.Lock()
	defer p.polling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.o.Tick)
	defer cancel()
	active, err := p.read(ctx)
	if err != nil {
		p.o.Registry.setKnown(0)
		p.metrics.failures.Inc()
		if !p.failing && !errors.Is(ctx.Err(), context.Canceled) {
			p.o.Log.Warn("cannot read Envoy's open requests: every sandbox counts as active", "error", err)
		}
		p.failing = true
		p.fill(nil)
		return err
	}
	if p.failing {
		p.o.Log.Info("reading Envoy's open requests again")
	}
	p.failing = false
	p.stamp(active)
	p.o.Registry.setKnown(3 * p.o.Tick)
	p.metrics.polls.Inc()
	p.metrics.open.Set(float64(len(active)))
	return nil
}

// stamp touches what is open, and what was. What was open before an Envoy that
// could not be read for some ticks is touched too: it may have been all along.
func (p *EnvoyPoller) stamp(active map[netip.Addr]uint64) {
	var open, full []*routecache.Stamp
	var filled []string
	if len(active) > 0 {
		var keys []claimKey
		var counts []uint64
		p.o.Claims.RangeClaims(func(addr netip.Addr, id, claim string) bool {
			if n := active[addr.Unmap()]; n > 0 {
				keys, counts = append(keys, claimKey{id, claim}), append(counts, n)
			}
			return true
		})
		for i, k := range keys {
			s := p.o.Registry.Stamp(k.id, k.claim)
			open = append(open, s)
			if p.o.MaxOpen > 0 && counts[i] >= p.o.MaxOpen {
				full, filled = append(full, s), append(filled, k.id)
			}
		}
	}
	p.fill(full)
	if p.o.Filled != nil {
		for _, id := range filled {
			p.o.Filled(id)
		}
	}
	now := p.o.Registry.Now()
	for _, s := range open {
		s.Touch(now)
	}
	for _, s := range p.before {
		s.Touch(now)
	}
	p.before = open
}

// fill marks the sandboxes that are full now, and unmarks the others.
func (p *EnvoyPoller) fill(full []*routecache.Stamp) {
	for _, s := range p.full {
		s.SetFull(false) // a request may slip through before it is set again
	}
	for _, s := range full {
		s.SetFull(true)
	}
	p.full = full
}

// read asks Envoy once.
func (p *EnvoyPoller) read(ctx context.Context) (map[netip.Addr]uint64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy/clusters", nil)
	if err != nil {
		return nil, fmt.Errorf("asking Envoy for its clusters: %w", err)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking Envoy for its clusters: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking Envoy for its clusters: status %d", resp.StatusCode)
	}
	active, err := parseActive(resp.Body, p.o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("reading Envoy's clusters: %w", err)
	}
	return active, nil
}
