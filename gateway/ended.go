package gateway

import (
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sandlane/sandlane/routing"
)

// maxEndings bounds the ends that are remembered. They are needed until the watch
// has brought them, which takes milliseconds.
const maxEndings = 4096

// endings are the claims whose sandboxes this gateway has ended. The index hears
// of an end a moment after it is written, and must not be believed meanwhile: a
// client that was told that a sandbox is killed must not reach it any more, since SDKs tell a
// kill from a command that ended by a 502 of /health. An end is final,
// and a claim ID is never used again, so what is remembered here stays true.
//
// Other gateways learn of it from their watches alone.
type endings struct {
	claims *lru.Cache[string, struct{}]
}

func newEndings() (*endings, error) {
	claims, err := lru.New[string, struct{}](maxEndings)
	if err != nil {
		return nil, fmt.Errorf("remember ended claims: %w", err)
	}
	return &endings{claims}, nil
}

// Add implements sandboxes.Endings; it is called when the end of the claim's sandbox is written.
func (e *endings) Add(claim string) { e.claims.Add(claim, struct{}{}) }

// Correct implements sandboxes.Endings: it turns the answer into Ended if this
// gateway ended its claim.
func (e *endings) Correct(a routing.Answer) routing.Answer {
	if a.ClaimID != "" && e.claims.Contains(a.ClaimID) {
		a.State, a.Route = routing.Ended, nil
	}
	return a
}
