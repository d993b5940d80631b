package claims

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sandlane/sandlane/egress/names"
)

// waitForClaim is how long a connection of a pod that is known waits for its claim.
const waitForClaim = 2 * time.Second

// ErrUnknown says that a connection is no claim's.
var ErrUnknown = errors.New("the connection is of no sandbox that is known")

// Arrival is a connection that was accepted.
type Arrival struct {
	t *Table
	e *era // nil: its address was unknown then
}

// Arrive notes which pod a connection belongs to that has just been accepted.
func (t *Table) Arrive(from netip.Addr) Arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.addrs[from.Unmap()]; e != nil && e.passed {
		return Arrival{t, e}
	}
	return Arrival{t: t}
}

// Use is a connection of a claim that is being served.
type Use struct {
	t     *Table
	e     *era
	close func()
	// host is what the connection is for; intercepted: its requests get headers. Empty
	// until Judge has allowed one. Guarded by Table.mu.
	host        string
	intercepted bool
}

// Wait returns the claim's use of the connection, once there is a claim. close is called
// when the claim is over or its policy decides otherwise, perhaps more than once and with
// locks held: it makes what serves the connection return, and does not wait. The caller
// calls Done.
func (a Arrival) Wait(ctx context.Context, close func()) (*Use, error) {
	if a.e == nil {
		return nil, ErrUnknown
	}
	timer := time.NewTimer(waitForClaim)
	defer timer.Stop()
	select {
	case <-a.e.claimed:
	case <-a.e.over:
	case <-timer.C:
	case <-ctx.Done():
	}
	a.t.mu.Lock()
	defer a.t.mu.Unlock()
	u := &Use{t: a.t, e: a.e, close: close}
	if a.e.claim == nil || !u.current() {
		return nil, ErrUnknown
	}
	a.e.uses[u] = struct{}{}
	return u, nil
}

// current reports whether the claim has the address still, and this process may know.
func (u *Use) current() bool {
	return u.t.addrs[u.e.addr] == u.e && u.t.o.Held()
}

// Claim returns the claim with its newest policy; nil if it is over or the lease is lost.
func (u *Use) Claim() *Claim {
	u.t.mu.Lock()
	defer u.t.mu.Unlock()
	if !u.current() {
		return nil
	}
	return u.e.claim
}

// Judge decides about the host of the connection, or of one of its requests, by the newest
// policy; nothing is allowed once the claim is over. A policy that decides otherwise later
// closes the connection.
func (u *Use) Judge(host string) names.Decision {
	u.t.mu.Lock()
	defer u.t.mu.Unlock()
	if !u.current() {
		return names.Decision{}
	}
	d := u.e.claim.Policy.Decide(host)
	if d.Allowed && u.host == "" {
		u.host, u.intercepted = host, d.Rule != nil
	}
	return d
}

// judgeAgain closes the connection if the policy, which is another one, decides otherwise
// about its host. Its caller holds Table.mu.
func (u *Use) judgeAgain() {
	if u.host == "" {
		return
	}
	if d := u.e.claim.Policy.Decide(u.host); !d.Allowed || (d.Rule != nil) != u.intercepted {
		u.close()
	}
}

// Done says that nothing is done for the claim any more. Call it once.
func (u *Use) Done() {
	u.t.mu.Lock()
	defer u.t.mu.Unlock()
	delete(u.e.uses, u)
	leaving := u.t.leaving[u.e.addr]
	if _, over := leaving[u.e]; !over || len(u.e.uses) > 0 {
		return
	}
	close(u.e.drained)
	if delete(leaving, u.e); len(leaving) == 0 {
		delete(u.t.leaving, u.e.addr)
	}
}
