package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// reasons say why a budget is missed where it is, as far as rows of the same
// result show it. The rows that begin alike share one.
var reasons = []struct{ rows, why string }{
	{"dataplane/fleet-", "Envoy's own cost: with so many upstream hosts each request spends several times the CPU in it (the rows `envoy-cpu`), " +
		"in front of the do-nothing server as well. What the gateway adds stands in `vs-do-nothing` beside it."},
	{"dataplane/touch-", "Three rounds of one pass over the addresses: nothing follows from one run."},
	{"routes/", "The budget is absolute: judge it beside golang-lru's hit in the same run, which knows no fence and no epoch. " +
		"Where each hit is of another route both wait for memory, as the bare map does."},
	{"claims/burst-32/", "The burst is over in a tenth of a second, and the scheduler has 12 claims under way where the bare writes have 32. " +
		"In the burst of 300 that costs nothing."},
	{"claims/first-", "Open. A first request is also a request through Envoy, and its two writes are watched by every gateway; client, Envoys, gateways " +
		"and API server share the cores, while bare writes leave them to the API server alone. What each takes was not measured apart."},
}

// missed lists the budgets that do not hold, with the reason where one is known.
func missed(r *result.Result) string {
	var b strings.Builder
	for _, row := range r.Rows {
		if row.Budget == nil || len(row.Samples) == 0 || row.Budget.Holds(row.Summary().Median) {
			continue
		}
		why := "Not explained."
		for _, known := range reasons {
			if strings.HasPrefix(row.Name, known.rows) {
				why = known.why
				break
			}
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", row.Name, why)
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nThose that do not hold:\n\n" + b.String()
}
