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

// Claims says which claim an address belongs to.
type Claims interface {
	// RangeClaims calls f for each claim with its pod's address until f returns
	// false.
	RangeClaims(f func(addr netip.Addr, namespace, id, claim string) bool)
}

// PollerOptions configure an EnvoyPoller.
type PollerOptions struct {
	// Registry is noted as used. Required.
	Registry *Registry
	// Claims map addresses to every claim that this gateway may have routed to: the index, and
	// the route cache, whose routes can be newer than what the watches have shown. Required.
	Claims []Claims
	// Synced reports whether Claims know all that runs. Until then what Envoy has open may be
	// anybody's, and nothing is known. Nil means that they do.
	Synced func() bool
	// AdminSocket is the path of Envoy's admin socket. Required.
	AdminSocket string
	// Cluster is Envoy's name of the sandboxes' cluster. Empty means "sandbox".
	Cluster string
	// MaxOpen is how many requests a sandbox of a namespace may have open: one that has as
	// many at a poll is full until a poll shows fewer, or Envoy cannot be read. 0 is no
	// limit, and so is nil.
	MaxOpen func(namespace string) int
	// Filled is called for each sandbox that is full, after its use says so. May be
	// nil.
	Filled func(id string)
	// Looking is called just before Envoy is asked, and what it returns with the answer by
	// namespace: how many requests are active, and how many connections have none. Both are
	// nil if Envoy could not be read. May be nil.
	Looking func() (looked func(active, spare map[string]int))
	// Tick is the time between polls: at most a quarter of the shortest idle
	// timeout. 0 means a second.
	Tick time.Duration
	// Clock makes the ticks. Nil means the real one.
	Clock clock.WithTicker
	// Log is told when Envoy becomes unreadable, and readable again. Nil means
	// slog.Default().
	Log *slog.Logger
}

// EnvoyPoller notes as used what Envoy has open: each tick what is open then, and what
// was open at the tick before, which may have ended just after it.
type EnvoyPoller struct {
	o       PollerOptions
	http    *http.Client
	metrics *metrics
	// polling is held during a poll: ticks and Refresh.
	polling sync.Mutex
	// before are the uses of what was open at the last tick that read Envoy, by address.
	// failing says that the last tick could not. Guarded by polling.
	before  map[netip.Addr][]*routecache.ClaimUse
	failing bool
	// full are the uses of sandboxes that had MaxOpen open then. Guarded by polling.
	full []*routecache.ClaimUse
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
		_ = p.Refresh(ctx) // it logs itself that Envoy cannot be read
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// NeedLeaderElection makes it run in every gateway.
func (p *EnvoyPoller) NeedLeaderElection() bool { return false }

// errNotSynced: a gateway has just started, and its Envoy may have requests open from before.
var errNotSynced = errors.New("the sandboxes and pods are not listed yet")

// Refresh is one tick, or a poll in between: it returns nil once what Envoy has
// open is noted as used. Envoy has one tick to answer; the counts hold for two more, in
// case this process is late itself.
func (p *EnvoyPoller) Refresh(ctx context.Context) error {
	p.polling.Lock()
	defer p.polling.Unlock()
	looked := func(_, _ map[string]int) {}
	if p.o.Looking != nil {
		looked = p.o.Looking() // may take a while, which is not Envoy's
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Tick)
	defer cancel()
	active, connections, err := p.read(ctx)
	if err != nil {
		looked(nil, nil)
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
	synced := p.o.Synced == nil || p.o.Synced() // before the claims are read
	looked(p.noteUse(active, connections))
	if !synced { // the gateway is not ready either, and says why
		p.o.Registry.setKnown(0)
		return errNotSynced
	}
	p.o.Registry.setKnown(3 * p.o.Tick)
	p.metrics.polls.Inc()
	p.metrics.open.Set(float64(len(active)))
	return nil
}

// noteUse touches what is open, and what was. What was open before an Envoy that
// could not be read for some ticks is touched too: it may have been all along. So is what was open
// at an address that still has requests and that no claim names any more: a claim that only a
// route told of is not named again before the watch of pods shows it. It returns how many
// requests each namespace has, and how many connections without one.
func (p *EnvoyPoller) noteUse(active, connections map[netip.Addr]uint64) (of, spare map[string]int) {
	of, spare = map[string]int{}, map[string]int{}
	open := map[netip.Addr][]*routecache.ClaimUse{}
	var full []*routecache.ClaimUse
	var filled []string
	if len(active)+len(connections) > 0 {
		var keys []claimKey
		var namespaces []string
		var counts []int
		var addrs []netip.Addr
		counted := make(map[netip.Addr]bool, len(active)) // an address and a claim may come twice
		note := func(addr netip.Addr, namespace, id, claim string) bool {
			addr = addr.Unmap()
			n, made := int(active[addr]), int(connections[addr])
			if n > 0 {
				keys, namespaces, counts, addrs = append(keys, claimKey{id, claim}), append(namespaces, namespace), append(counts, n), append(addrs, addr)
			}
			if n+made > 0 && !counted[addr] {
				counted[addr] = true
				of[namespace] += n
				spare[namespace] += max(0, made-n)
			}
			return true
		}
		for _, claims := range p.o.Claims {
			claims.RangeClaims(note)
		}
		for i, k := range keys {
			s := p.o.Registry.ClaimUse(k.id, k.claim)
			open[addrs[i]] = append(open[addrs[i]], s)
			if most := p.maxOpen(namespaces[i]); most > 0 && counts[i] >= most {
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
	for addr, were := range p.before {
		touch(were, now)
		if open[addr] == nil && active[addr] > 0 {
			open[addr] = were
		}
	}
	for _, uses := range open {
		touch(uses, now)
	}
	p.before = open
	return of, spare
}

func touch(uses []*routecache.ClaimUse, now int64) {
	for _, s := range uses {
		s.Touch(now)
	}
}

func (p *EnvoyPoller) maxOpen(namespace string) int {
	if p.o.MaxOpen == nil {
		return 0
	}
	return p.o.MaxOpen(namespace)
}

// fill marks the sandboxes that are full now, and unmarks the others.
func (p *EnvoyPoller) fill(full []*routecache.ClaimUse) {
	for _, s := range p.full {
		s.SetFull(false) // a request may slip through before it is set again
	}
	for _, s := range full {
		s.SetFull(true)
	}
	p.full = full
}

// read asks Envoy once.
func (p *EnvoyPoller) read(ctx context.Context) (active, connections map[netip.Addr]uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy/clusters", nil)
	if err != nil {
		return nil, nil, fmt.Errorf("asking Envoy for its clusters: %w", err)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("asking Envoy for its clusters: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("asking Envoy for its clusters: status %d", resp.StatusCode)
	}
	active, connections, err = parseActive(resp.Body, p.o.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("reading Envoy's clusters: %w", err)
	}
	return active, connections, nil
}
