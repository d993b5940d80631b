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
	{"routes/", "The budget is absolute: judge it beside golang-lru's hit in the same run. Ours hashes the ID once more, for its shard, " +
		"which is what several goroutines gain by (the rows of 8). Where each hit is of another route all wait for memory, as the bare map does."},
	{"claims/burst-32/", "The burst is over in a tenth of a second, and the scheduler has 12 claims under way where the bare writes have 32. " +
		"In the burst of 300 that costs nothing."},
}

// missed lists the budgets that do not hold, with the reason where one is known.
func missed(r *result.Result) string {
	var b strings.Builder
	for _, row := range r.Rows {
		if row.Budget == nil || len(row.Samples) == 0 || row.Budget.Holds(row.Summary().Median) {
			continue
		}
		why := shared(r, row.Name)
		for _, known := range reasons {
			if strings.HasPrefix(row.Name, known.rows) {
				why = known.why
				break
			}
		}
		if in := row.Summary(); in.Known && row.Budget.Holds(in.Low) != row.Budget.Holds(in.High) {
			why = fmt.Sprintf("The interval, %s to %s, has the budget inside: this run does not tell. %s", number(in.Low), number(in.High), why)
			why = strings.TrimSuffix(why, " Not explained.")
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", row.Name, why)
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nThose that do not hold:\n\n" + b.String()
}

// shared explains a burst of claims by what each takes of the processors that all
// programs share; rows of the same result tell.
func shared(r *result.Result, row string) string {
	burst := strings.TrimSuffix(row, "/ratio/vs-bare")
	of := func(side string, programs ...string) (sum float64) {
		for _, p := range programs {
			if cpu := r.Row(burst + "/" + side + "/cpu-" + p); cpu != nil {
				sum += cpu.Summary().Median
			}
		}
		return sum
	}
	store, ours := []string{"kube-apiserver", "etcd"}, []string{"envoy", "gateway", "upstream", "client"}
	bare, theirs := of("bare", append(ours, store...)...), of("sandlane", ours...)
	if bare == 0 || theirs == 0 {
		return "Not explained."
	}
	writes := of("sandlane", store...)
	return fmt.Sprintf("All programs share the cores, and both sides use them whole. Of %.1f ms of CPU a claim, %.1f are the API server's and etcd's, "+
		"%.1f those of Envoys, gateways, upstream and client; bare writes take %.1f in all, %.1f of them in the API server and etcd, which have everything to do at once "+
		"and so write more in one go. By CPU alone the ratio would be %.2f.", writes+theirs, writes, theirs, bare, of("bare", store...), bare/(writes+theirs))
}
