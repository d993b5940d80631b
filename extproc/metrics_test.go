package extproc

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Counters are there before their first event: an alert's rate misses the event that a
// series begins with.
func TestCountersBeforeTheirFirstEvent(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	outcomes := regexp.MustCompile(`(?m)^\toutcome\w+ += "(\w+)"`).FindAll(source, -1)
	want := len(outcomes) - 1 + len(reasons) // what is rejected has a series for each reason instead
	reg := prometheus.NewRegistry()
	NewMetrics(reg)
	if n, err := testutil.GatherAndCount(reg, "sandlane_extproc_requests_total"); n != want || err != nil {
		t.Errorf("%d series of requests (%v), want %d: one for each of %d outcomes, and of rejected ones for each of %d reasons", n, err, want, len(outcomes), len(reasons))
	}
}

// Each reason of metrics.go is in the list.
func TestReasonsAreAll(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\treason\w+ += "(\w+)"$`).FindAllSubmatch(source, -1)
	if len(declared) != len(reasons) {
		t.Errorf("%d are declared, %d listed", len(declared), len(reasons))
	}
	for _, d := range declared {
		if !slices.Contains(reasons, string(d[1])) {
			t.Errorf("%s is not listed", d[1])
		}
	}
}
