package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/bench/result"
)

// reasons are the rows that say why a budget is missed. Nothing here is known
// beforehand: a row that the run lacks is left out, and without any of them the
// page says that the miss is not explained.
var reasons = []struct {
	// suffix is the end of the budget's row; "-" in beside stands for what comes
	// before it.
	suffix string
	beside []string
	// says is what to read out of the rows.
	says string
}{
	{
		"/ratio/vs-do-nothing",
		[]string{"-/sandlane/envoy-cpu", "-/do-nothing/envoy-cpu", "-/sandlane/server-cpu", "-/do-nothing/server-cpu", "-/sandlane/rps", "-/do-nothing/rps"},
		"Where Envoy's CPU a request times its requests/s is close to a core, Envoy alone decides the rate.",
	},
	{
		"/ratio/vs-one-sandbox",
		[]string{"-/sandlane/envoy-cpu", "-/sandlane-one/envoy-cpu", "-/do-nothing/envoy-cpu", "-/sandlane/server-cpu", "-/sandlane-one/server-cpu"},
		"What grows from one sandbox to many in Envoy, and does so in front of the do-nothing server too, is Envoy's.",
	},
	{
		"/both/time",
		[]string{"-/sandlane/cpu", "-/envoy/cpu"},
		"Envoy's part is to write the page down, the gateway's to read it.",
	},
	{
		"/sandlane/hot-1",
		[]string{"-/golang-lru/hot-1", "-/map-mutex/hot-1"},
		"The budget is absolute and machines differ: a library and a bare map under a mutex stand beside it.",
	},
	{
		"/sandlane/hit-1",
		[]string{"-/golang-lru/hit-1", "-/map-mutex/hit-1"},
		"The budget is absolute and machines differ: a library and a bare map under a mutex stand beside it.",
	},
	{
		"/ratio/p50-vs-bare",
		[]string{"-/sandlane/latency", "-/bare/latency"},
		"The difference is all that is no write.",
	},
	{
		"/ratio/vs-bare",
		burst("kube-apiserver", "etcd", "envoy", "gateway", "upstream", "client"),
		"All programs share the cores: the ratio of both sides' sums is what CPU alone would give. Tries above 1 are gateways that reached for one pod.",
	},
}

// burst names the CPU rows of both sides of a burst.
func burst(programs ...string) []string {
	rows := []string{}
	for _, side := range []string{"-/sandlane/cpu-", "-/bare/cpu-"} {
		for _, p := range programs {
			rows = append(rows, side+p)
		}
	}
	return append(rows, "-/sandlane/tries")
}

// missed is a table of the budgets that do not hold and of those that a run does not
// decide, with the medians of the rows that say why, and below it how to read them.
func missed(r *result.Result) string {
	var table strings.Builder
	notes, seen := []string{}, map[string]int{} // by sentence: its number
	for _, of := range budgets {
		row := r.Row(of.row)
		if row == nil || len(row.Samples) == 0 || row.Budget == nil {
			continue
		}
		verdict := "missed"
		if in := row.Summary(); undecided(row) {
			verdict = fmt.Sprintf("undecided: %s to %s has the budget inside", number(in.Low), number(in.High))
		} else if row.Budget.Holds(in.Median) {
			continue
		}
		figures, says := why(r, row.Name)
		note := ""
		if says != "" {
			if seen[says] == 0 {
				notes = append(notes, says)
				seen[says] = len(notes)
			}
			note = fmt.Sprint(seen[says])
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", row.Name, verdict, figures, note)
	}
	if table.Len() == 0 {
		return ""
	}
	text := "\nThose that do not hold, or that this run does not decide, with the medians of rows beside them:\n\n" +
		"| budget | verdict | beside it | read |\n|---|---|---|---|\n" + table.String()
	for i, n := range notes {
		if i == 0 {
			text += "\n"
		}
		text += fmt.Sprintf("%d. %s\n", i+1, n)
	}
	return text
}

// why returns the medians of the rows that say why a budget is missed, and how to
// read them.
func why(r *result.Result, budget string) (figures, says string) {
	for _, reason := range reasons {
		name, found := strings.CutSuffix(budget, reason.suffix)
		if !found {
			continue
		}
		var all []string
		for _, beside := range reason.beside {
			row := r.Row(strings.Replace(beside, "-", name, 1))
			if row != nil && len(row.Samples) > 0 {
				all = append(all, fmt.Sprintf("%s %s %s", strings.TrimPrefix(beside, "-/"), number(row.Summary().Median), row.Unit))
			}
		}
		if len(all) > 0 {
			return strings.Join(all, ", "), reason.says
		}
	}
	return "not explained", ""
}
