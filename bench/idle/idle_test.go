package idle

import (
	"io"
	"testing"

	"github.com/sandlane/sandlane/bench/suite"
)

// The section runs, and its figures are so large that the index must have seen every object:
// an index that saw none would cost nothing.
func TestSection(t *testing.T) {
	e, err := suite.NewEnv(suite.Plan{Pairs: 1, Objects: 5000}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := Section().Run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for name, least := range map[string]float64{
		"idle/index/sandlane/pod": 100, "idle/index/sandlane/sandbox": 100, "idle/registry-5000/sandlane/memory": 50,
		"idle/index/informer/pod": 1000, "idle/wire/sandlane/pod": 300, "idle/wire/sandlane/sandbox": 200,
	} {
		row := e.Row(name)
		if row == nil || len(row.Samples) == 0 {
			t.Fatalf("no row %s", name)
		}
		if got := row.Summary().Median; got < least {
			t.Errorf("%s: %v, at least %v must be so", name, got, least)
		}
	}
}
