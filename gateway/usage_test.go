package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/inuse"
)

// fakeClaims is an index of one claim a sandbox.
type fakeClaims struct {
	synced bool
	of     map[string]index.Answer
}

func (f fakeClaims) Synced() bool                   { return f.synced }
func (f fakeClaims) Resolve(id string) index.Answer { return f.of[id] }

// Envoy tells of a stream when it has ended, which may be long after its claim was
// over: when more claims have ended since than the registry remembers.
func TestStreamThatOutlivedItsClaimLeavesNothing(t *testing.T) {
	const claims = 20_000
	known := fakeClaims{true, map[string]index.Answer{}}
	u := usage{inuse.NewRegistry(nil), known}
	id := func(i int) string { return fmt.Sprintf("s%d", i) }
	for i := range claims {
		u.Stamp(id(i), "c").Touch(u.Now())
		u.ClaimEnded(id(i), "c")
		switch i % 3 { // its record stays, it has another claim by now, or it is forgotten
		case 0:
			known.of[id(i)] = index.Answer{State: index.Ended, ClaimID: "c"}
		case 1:
			known.of[id(i)] = index.Answer{State: index.Running, ClaimID: "next"}
		}
	}
	for i := range claims {
		u.StreamEnded(id(i), "c", time.Now())
	}
	if n := len(u.Since(0).Entries); n != 0 {
		t.Errorf("%d entries of claims that are over stay", n)
	}
}

// A stream that the process before this one began counts as use, though no request
// of this one has met its claim; so it does while the index has not listed.
func TestStreamOfTheProcessBefore(t *testing.T) {
	live := map[string]index.Answer{"s": {State: index.Running, ClaimID: "c"}}
	for name, known := range map[string]fakeClaims{"known": {true, live}, "before the first list": {}} {
		t.Run(name, func(t *testing.T) {
			u := usage{inuse.NewRegistry(nil), known}
			u.StreamEnded("s", "c", time.Now().Add(-time.Minute))
			entries := u.Since(0).Entries
			if len(entries) != 1 || entries[0].Claim != "c" || entries[0].Age < time.Minute || entries[0].Age > 2*time.Minute {
				t.Errorf("entries %+v, want one that is a minute old", entries)
			}
		})
	}
}
