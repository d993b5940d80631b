package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// missed lists the budgets that do not hold and those that a run does not decide,
// with what rows of the same result say on them. Nothing here is known beforehand:
// where no row says anything, neither does the page.
func missed(r *result.Result) string {
	var b strings.Builder
	for _, of := range budgets {
		row := r.Row(of.row)
		if row == nil || len(row.Samples) == 0 || row.Budget == nil {
			continue
		}
		var why []string
		if in := row.Summary(); undecided(row) {
			why = append(why, fmt.Sprintf("The interval, %s to %s, has the budget inside: this run does not tell.", number(in.Low), number(in.High)))
		} else if row.Budget.Holds(in.Median) {
			continue
		}
		if says := explained(r, row.Name); says != "" {
			why = append(why, says)
		}
		if why == nil {
			why = []string{"Not explained."}
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", row.Name, strings.Join(why, " "))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nThose that do not hold, or that this run does not decide:\n\n" + b.String()
}

// explained is what other rows say on a budget that is missed; empty if nothing.
func explained(r *result.Result, row string) string {
	switch {
	case strings.HasSuffix(row, "/ratio/vs-do-nothing"):
		return narrow(r, strings.TrimSuffix(row, "/ratio/vs-do-nothing"))
	case strings.HasSuffix(row, "/vs-one-sandbox"):
		return spread(r, strings.TrimSuffix(row, "/ratio/vs-one-sandbox"))
	case strings.HasSuffix(row, "/both/time"):
		return looked(r, strings.TrimSuffix(row, "/both/time"))
	case strings.HasSuffix(row, "/hot-1"), strings.HasSuffix(row, "/hit-1"):
		return beside(r, row)
	case strings.HasSuffix(row, "/ratio/p50-vs-bare"):
		return apart(r, strings.TrimSuffix(row, "/ratio/p50-vs-bare"))
	case strings.HasSuffix(row, "/ratio/vs-bare"):
		return shared(r, strings.TrimSuffix(row, "/ratio/vs-bare"))
	}
	return ""
}

// medians returns the medians of rows, and whether all are there.
func medians(r *result.Result, names ...string) ([]float64, bool) {
	var all []float64
	for _, name := range names {
		row := r.Row(name)
		if row == nil || len(row.Samples) == 0 {
			return nil, false
		}
		all = append(all, row.Summary().Median)
	}
	return all, true
}

// narrow says how busy each side's Envoy is: what its server saves is not seen in
// requests/s once Envoy's threads have no time left.
func narrow(r *result.Result, name string) string {
	m, ok := medians(r, name+"/sandlane/envoy-cpu", name+"/do-nothing/envoy-cpu", name+"/sandlane/rps", name+"/do-nothing/rps", name+"/sandlane/server-cpu", name+"/do-nothing/server-cpu")
	if !ok {
		return ""
	}
	return fmt.Sprintf("Envoy takes %s µs of CPU a request and %s in front of the do-nothing server: %.2f and %.2f of a core. The gateway takes %s µs, the do-nothing server %s.",
		number(m[0]), number(m[1]), m[0]*m[2]/1e6, m[1]*m[3]/1e6, number(m[4]), number(m[5]))
}

// looked tells Envoy's part from the gateway's, of a look at what is in use.
func looked(r *result.Result, name string) string {
	m, ok := medians(r, name+"/sandlane/cpu", name+"/envoy/cpu")
	if !ok {
		return ""
	}
	return fmt.Sprintf("The gateway takes %.1f ms of CPU for a look, Envoy %.1f to write it down.", m[0], m[1])
}

// spread tells Envoy's part from the gateway's, of what many sandboxes cost.
func spread(r *result.Result, name string) string {
	m, ok := medians(r, name+"/sandlane/envoy-cpu", name+"/sandlane-one/envoy-cpu", name+"/sandlane/server-cpu", name+"/sandlane-one/server-cpu", name+"/do-nothing/envoy-cpu")
	if !ok {
		return ""
	}
	return fmt.Sprintf("Envoy takes %s µs of CPU a request here and %s with one sandbox, the gateway %s and %s. In front of the do-nothing server Envoy takes %s over as many sandboxes.",
		number(m[0]), number(m[1]), number(m[2]), number(m[3]), number(m[4]))
}

// beside names what others take for the same in the same run: the budget is
// absolute, and machines differ.
func beside(r *result.Result, row string) string {
	m, ok := medians(r, strings.Replace(row, "/sandlane/", "/golang-lru/", 1), strings.Replace(row, "/sandlane/", "/map-mutex/", 1))
	if !ok {
		return ""
	}
	return fmt.Sprintf("The budget is absolute. In the same run golang-lru takes %s ns, and a bare map under a mutex %s.", number(m[0]), number(m[1]))
}

// apart gives both sides of a claim that comes alone.
func apart(r *result.Result, name string) string {
	m, ok := medians(r, name+"/sandlane/latency", name+"/bare/latency")
	if !ok {
		return ""
	}
	return fmt.Sprintf("One takes %.1f ms and its bare writes %.1f: %.1f ms are for all that is no write.", m[0]/1000, m[1]/1000, (m[0]-m[1])/1000)
}

// shared says what each side of a burst takes of the processors, which all
// programs share.
func shared(r *result.Result, burst string) string {
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
		return ""
	}
	writes := of("sandlane", store...)
	told := fmt.Sprintf("All programs share the cores. Of %.1f ms of CPU a claim, %.1f are the API server's and etcd's, "+
		"%.1f those of Envoys, gateways, upstream and client; bare writes take %.1f in all, %.1f of them in the API server and etcd. By CPU alone the ratio would be %.2f.",
		writes+theirs, writes, theirs, bare, of("bare", store...), bare/(writes+theirs))
	if r.Row(burst+"/sandlane/cpu-gateway") != nil {
		told += " Both send the API server the same writes; ours are not all there at once, and gateways watch them."
	}
	if m, ok := medians(r, burst+"/sandlane/tries"); ok && m[0] > 1.01 {
		told += fmt.Sprintf(" A claim took %.2f tries: gateways reach for the same pod, and one of them gets it.", m[0])
	}
	return told
}
