package routes

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
)

func TestSection(t *testing.T) {
	e, err := suite.NewEnv(suite.Plan{Pairs: 1, RoundTime: 50 * time.Millisecond, Entries: 1000}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := Section().Run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		for _, figure := range []string{"memory", "hot-1", "hit-1", "hit-allocations"} {
			name := fmt.Sprintf("routes/1000/%s/%s", k.name, figure)
			if row := e.Row(name); row == nil || len(row.Samples) != 1 {
				t.Errorf("no sample of %s", name)
			}
		}
	}
}

// A hit is a hit and a miss a miss, in every store.
func TestStores(t *testing.T) {
	stored := many("stored-", 1000)
	for _, k := range kinds() {
		s, _ := fill(k, stored)
		for _, r := range stored {
			if !s.get(r.SandboxID) {
				t.Fatalf("%s lost %s", k.name, r.SandboxID)
			}
		}
		if s.get("never put") {
			t.Errorf("%s has what was never put", k.name)
		}
	}
}
