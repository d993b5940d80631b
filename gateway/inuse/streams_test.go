package inuse

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/routing"
)

// fakeClaims is an index of one claim a sandbox.
type fakeClaims struct {
	synced bool
	of     map[string]routing.Answer
}

func (f fakeClaims) Synced() bool                     { return f.synced }
func (f fakeClaims) Resolve(id string) routing.Answer { return f.of[id] }

func registryOf(x ClaimIndex) *Registry {
	r := NewRegistry(nil)
	r.SetIndex(x)
	return r
}

// Envoy tells of a stream when it has ended, which may be long after its claim was
// over: when more claims have ended since than the registry remembers.
func TestStreamThatOutlivedItsClaimLeavesNothing(t *testing.T) {
	const claims = 20_000
	known := fakeClaims{true, map[string]routing.Answer{}}
	u := registryOf(known)
	id := func(i int) string { return fmt.Sprintf("s%d", i) }
	for i := range claims {
		u.ClaimUse(id(i), "c").Touch(u.Now())
		u.ClaimEnded(id(i), "c")
		switch i % 3 { // its record stays, it has another claim by now, or it is forgotten
		case 0:
			known.of[id(i)] = routing.Answer{State: routing.Ended, ClaimID: "c"}
		case 1:
			known.of[id(i)] = routing.Answer{State: routing.Running, ClaimID: "next"}
		}
	}
	for i := range claims {
		u.StreamEnded(id(i), "c", time.Now())
	}
	if n := len(u.LastActive(0).Entries); n != 0 {
		t.Errorf("%d entries of claims that are over stay", n)
	}
}

// A stream that the process before this one began counts as use, though no request
// of this one has met its claim; so it does while the index has not listed.
func TestStreamOfTheProcessBefore(t *testing.T) {
	live := map[string]routing.Answer{"s": {State: routing.Running, ClaimID: "c"}}
	for name, known := range map[string]fakeClaims{"known": {true, live}, "before the first list": {}} {
		t.Run(name, func(t *testing.T) {
			u := registryOf(known)
			u.StreamEnded("s", "c", time.Now().Add(-time.Minute))
			entries := u.LastActive(0).Entries
			if len(entries) != 1 || entries[0].ClaimID != "c" || entries[0].Age < time.Minute || entries[0].Age > 2*time.Minute {
				t.Errorf("entries %+v, want one that is a minute old", entries)
			}
		})
	}
}

// What a controller has a gateway remember is reported to the next one as it is by then, also
// of a claim that the index does not show yet: its use at a gateway that is gone is known here
// alone. Not so of sandboxes that have ended.
func TestRememberedForTheNextController(t *testing.T) {
	u := registryOf(fakeClaims{true, map[string]routing.Answer{
		"s": {State: routing.Running, ClaimID: "c"}, "over": {State: routing.Ended, ClaimID: "c"},
	}})
	var seen []controlplane.Sighting
	var used []controlplane.Activity
	for _, id := range []string{"s", "over", "late"} {
		seen = append(seen, controlplane.Sighting{SandboxID: id, ClaimID: "c", Age: time.Hour, PauseOrder: 3})
		used = append(used, controlplane.Activity{SandboxID: id, ClaimID: "c", Age: time.Minute})
	}
	u.Remember(seen, nil)
	if r := u.LastActive(0); len(r.Entries) != 0 {
		t.Errorf("a claim that was only seen is reported as used: %+v", r.Entries)
	}
	u.Remember([]controlplane.Sighting{{SandboxID: "s", ClaimID: "c", PauseOrder: 2}}, used) // an older one
	r := u.LastActive(0)
	if len(r.Seen) != 2 || len(r.Entries) != 2 {
		t.Fatalf("seen %+v, used %+v", r.Seen, r.Entries)
	}
	for i, id := range []string{"s", "late"} {
		if s := r.Seen[i]; s.SandboxID != id || s.PauseOrder != 3 || s.Age < time.Hour {
			t.Errorf("seen %+v", s)
		}
		if e := r.Entries[i]; e.SandboxID != id || e.Age < time.Minute || e.Age > time.Hour {
			t.Errorf("used %+v", e)
		}
	}
	if r := u.LastActive(r.Cursor); len(r.Seen)+len(r.Entries) != 0 {
		t.Errorf("reported again: %+v", r)
	}
	u.ClaimEnded("s", "c")
	u.ClaimEnded("late", "c")
	u.Remember(seen, used)
	if r := u.LastActive(0); len(r.Seen)+len(r.Entries) != 0 {
		t.Errorf("reported of a claim that has ended: %+v", r)
	}
}
