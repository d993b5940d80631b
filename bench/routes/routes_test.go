package routes

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
)

func TestSection(t *testing.T) {
	e, err := suite.NewEnv(suite.Plan{Pairs: 1, RoundTime: 50 * time.Millisecond, Entries: []int{1000}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := Section().Run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		for _, figure := range []string{"memory", "hit-1", "hit-2", "hit-8", "miss-1", "put-8", "evict-1", "evict-8", "hit-allocations"} {
			name := fmt.Sprintf("routes/1000/%s/%s", k.name, figure)
			if row := e.Row(name); row == nil || len(row.Samples) != 1 {
				t.Errorf("no sample of %s", name)
			}
		}
	}
}

// A hit is a hit and a miss a miss, in every store; full ones stay their size.
func TestStores(t *testing.T) {
	stored, more := many("stored-", 1000), many("more-", 1000)
	for _, k := range kinds() {
		s, _ := fill(k, stored)
		for _, r := range stored {
			if !s.get(r.SandboxID) {
				t.Fatalf("%s lost %s", k.name, r.SandboxID)
			}
		}
		if s.get(more[0].SandboxID) {
			t.Errorf("%s has what was never put", k.name)
		}
		full := k.make(500)
		for _, r := range append(many("stored-", 1000), many("more-", 1000)...) {
			full.put(r)
		}
		kept := 0
		for _, r := range append(stored, more...) {
			if full.get(r.SandboxID) {
				kept++
			}
		}
		if kept < 400 || kept > 512 { // the route cache rounds its shards up
			t.Errorf("%s for 500 routes keeps %d", k.name, kept)
		}
	}
}
