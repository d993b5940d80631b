package address

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// DefaultCooldown is how long after its fence an address stays unused (docs/design/design.md
// 4.2). It is longer than from an answer of ExtProc until Envoy's connection for it was made
// (envoy.MaxHold, 7.1 s), also if Envoy stands still meanwhile.
const DefaultCooldown = 8 * time.Second

// keepFenced is how long after its cooldown a fenced entry is remembered. The pool reconciler
// asks for it when the record of the claim is gone before the pod is.
const keepFenced = 10 * time.Minute

// Ledger is what this process knows about which claim had which address. It is safe for
// concurrent use.
type Ledger struct {
	clock clock.PassiveClock
	// cooldown is how long after its fence an address stays unused; it never changes.
	cooldown time.Duration

	mu sync.Mutex
	// loaded is set once by Load and never cleared.
	loaded bool
	// claims and byAddress hold the same entries; both change under mu.
	claims    map[string]*entry
	byAddress map[string]map[string]*entry
	// bySandbox has the entries that are held, by sandbox ID; it changes under mu.
	bySandbox map[string][]*entry
	nextPrune time.Time
}

// entry is one claim that has or had an address. A zero fencedAt means not fenced.
type entry struct {
	claim, sandbox, address string
	fencedAt                time.Time
}

// UnfencedClaim is a claim whose end is not yet fenced.
type UnfencedClaim struct {
	ClaimID, SandboxID string
	Address            string
}

// NewLedger returns an empty ledger, for which no address is free before Load. An address
// stays unused for cooldown after its fence; 0 is DefaultCooldown. A nil clock is the real one.
func NewLedger(c clock.PassiveClock, cooldown time.Duration) *Ledger {
	if c == nil {
		c = clock.RealClock{}
	}
	if cooldown <= 0 {
		cooldown = DefaultCooldown
	}
	return &Ledger{clock: c, cooldown: cooldown, claims: map[string]*entry{}, byAddress: map[string]map[string]*entry{}, bySandbox: map[string][]*entry{}}
}

// Cooldown returns how long after its fence an address stays unused.
func (l *Ledger) Cooldown() time.Duration { return l.cooldown }

// NoteClaim notes that the sandbox's claim has or had the address. It must be called before the
// address is written to the Sandbox's status. A claim that is fenced stays so:
// a late caller with an old view changes nothing. Empty arguments are ignored.
func (l *Ledger) NoteClaim(claimID, sandboxID, address string) {
	if claimID == "" || address == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[claimID] == nil {
		l.bySandbox[sandboxID] = append(l.bySandbox[sandboxID], l.put(claimID, sandboxID, address))
	}
}

// NoteFenced notes that from now on every gateway knows the end of the claim.
func (l *Ledger) NoteFenced(claimID, address string) {
	if claimID == "" || address == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markFenced(l.put(claimID, "", address))
	l.prune()
}

// NoteFencedInStatus notes that the claim's Sandbox says it is fenced. It matters
// only for a claim that is not fenced here: another process had it fenced.
func (l *Ledger) NoteFencedInStatus(claimID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.claims[claimID]; e != nil {
		l.markFenced(e)
	}
}

// markFenced notes that a claim is fenced from now on, if it was not. mu is held.
func (l *Ledger) markFenced(e *entry) {
	if !e.fencedAt.IsZero() {
		return
	}
	e.fencedAt = l.clock.Now()
	held := slices.DeleteFunc(l.bySandbox[e.sandbox], func(h *entry) bool { return h == e })
	if len(held) == 0 {
		delete(l.bySandbox, e.sandbox)
	} else {
		l.bySandbox[e.sandbox] = held
	}
}

// IsFenced reports whether the claim was fenced, as far as this process knows.
func (l *Ledger) IsFenced(claimID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.claims[claimID]
	return e != nil && !e.fencedAt.IsZero()
}

// SafelyFenced reports whether the claim was fenced at least the cooldown ago, as far
// as this process knows.
func (l *Ledger) SafelyFenced(claimID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.claims[claimID]
	return e != nil && !e.fencedAt.IsZero() && l.clock.Since(e.fencedAt) >= l.cooldown
}

// Free reports whether no claim known here stands in the way of the address; if
// one does, when to ask again and which claim it is.
func (l *Ledger) Free(address string) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded {
		return busy("the controller has not read which claim had which address", pollBusy)
	}
	verdict := Verdict{Free: true}
	for _, e := range l.byAddress[address] {
		verdict = verdict.and(judge(e.fencedAt, l.clock.Now(), l.cooldown, "claim "+e.claim))
	}
	return verdict
}

// Loaded reports whether Load has succeeded.
func (l *Ledger) Loaded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded
}

// Unfenced lists all claims that are not fenced.
func (l *Ledger) Unfenced() []UnfencedClaim {
	l.mu.Lock()
	defer l.mu.Unlock()
	var held []UnfencedClaim
	for _, e := range l.claims {
		if e.fencedAt.IsZero() {
			held = append(held, UnfencedClaim{e.claim, e.sandbox, e.address})
		}
	}
	return held
}

// UnfencedOf lists the sandbox's claims that are not fenced.
func (l *Ledger) UnfencedOf(sandboxID string) []UnfencedClaim {
	l.mu.Lock()
	defer l.mu.Unlock()
	var held []UnfencedClaim
	for _, e := range l.bySandbox[sandboxID] {
		held = append(held, UnfencedClaim{e.claim, e.sandbox, e.address})
	}
	return held
}

// put returns the claim's entry, made if need be. mu is held.
func (l *Ledger) put(claimID, sandboxID, address string) *entry {
	if e := l.claims[claimID]; e != nil {
		return e
	}
	e := &entry{claim: claimID, sandbox: sandboxID, address: address}
	l.claims[claimID] = e
	if l.byAddress[address] == nil {
		l.byAddress[address] = map[string]*entry{}
	}
	l.byAddress[address][claimID] = e
	return e
}

// prune drops entries fenced long ago, at most once a minute. mu is held.
func (l *Ledger) prune() {
	now := l.clock.Now()
	if now.Before(l.nextPrune) {
		return
	}
	l.nextPrune = now.Add(time.Minute)
	for claim, e := range l.claims {
		if e.fencedAt.IsZero() || now.Sub(e.fencedAt) < l.cooldown+keepFenced {
			continue
		}
		delete(l.claims, claim)
		delete(l.byAddress[e.address], claim)
		if len(l.byAddress[e.address]) == 0 {
			delete(l.byAddress, e.address)
		}
	}
}
