package extproc

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Counters are there before their first event: an alert's rate misses the event that a
// series begins with.
func TestCountersBeforeTheirFirstEvent(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewMetrics(reg)
	if n, err := testutil.GatherAndCount(reg, "sandlane_extproc_requests_total"); n != 7+len(reasons) || err != nil {
		t.Errorf("%d series of requests (%v), want one for each outcome, and of rejected ones for each of %d reasons", n, err, len(reasons))
	}
}
