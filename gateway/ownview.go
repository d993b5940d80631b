package gateway

import (
	"context"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
)

// maxEnded bounds the ends that are remembered. They are needed until the watch
// has brought them, which takes milliseconds.
const maxEnded = 4096

// ownView is what this gateway knows of sandboxes: what its index shows, its own writes that
// the watch may not have shown yet (ends, pauses and resumes), and which pods it has
// initialised. Other gateways learn of the writes from their watches alone. It is
// extproc.Resolver and backend.Endings. Safe for concurrent use.
type ownView struct {
	index  *index.Index
	live   *index.Live
	ready  *sandboxdclient.Readiness
	pauser *pause.Pauser
	// ended are the claims whose sandboxes this gateway has ended. The index hears
	// of an end a moment after it is written, and must not be believed meanwhile: a
	// client that was told that a sandbox is killed must not reach it any more, since SDKs tell a
	// kill from a command that ended by a 502 of /health. An end is final,
	// and a claim ID is never used again, so what is remembered here stays true until the API
	// server goes back to an older state.
	ended *lru.Cache[string, struct{}]
}

func newOwnView(x *index.Index, live *index.Live, ready *sandboxdclient.Readiness, p *pause.Pauser) (*ownView, error) {
	ended, err := lru.New[string, struct{}](maxEnded)
	if err != nil {
		return nil, fmt.Errorf("remember ended claims: %w", err)
	}
	return &ownView{index: x, live: live, ready: ready, pauser: p, ended: ended}, nil
}

// Add implements backend.Endings; it is called when the end of the claim's sandbox is written.
func (v *ownView) Add(claim string) { v.ended.Add(claim, struct{}{}) }

// rewind forgets the writes: the API server has gone back to an older state, which may have none
// of them.
func (v *ownView) rewind() {
	v.ended.Purge()
	v.pauser.Rewind()
}

// Correct implements backend.Endings: it changes the answer of the index where this gateway's
// own writes are newer. It is Ended if this gateway ended its claim.
func (v *ownView) Correct(a routing.Answer) routing.Answer {
	if a.ClaimID != "" && v.ended.Contains(a.ClaimID) {
		a.State, a.Route = routing.Ended, nil
	}
	return v.pauser.Correct(a)
}

// known is activation.Options.Known: the answer of the index, corrected.
func (v *ownView) known(id string) routing.Answer { return v.Correct(v.index.Resolve(id)) }

// Lookup implements extproc.Resolver.
func (v *ownView) Lookup(id string) routing.Answer { return v.reachable(id, v.known(id)) }

// Resolve implements extproc.Resolver.
func (v *ownView) Resolve(ctx context.Context, id, caller string) (routing.Answer, error) {
	a, err := v.live.ResolveFor(ctx, caller, id)
	return v.reachable(id, a), err
}

// reachable returns the answer with a running pod whose sandboxd has yet to be initialised as
// starting: following its activation initialises it.
func (v *ownView) reachable(id string, a routing.Answer) routing.Answer {
	if a.State == routing.Running && v.ready.Pending(id, a.ClaimID, a.Sandboxd) {
		a.State, a.Route = routing.Starting, nil
	}
	return a
}
