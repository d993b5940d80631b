package report

import (
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// reasons are the rows that explain why a budget is missed. A row that the run lacks is
// left out; if it lacks all, the page says that the miss is not explained.
var reasons = []struct {
	// suffix is the end of the name of the budget's row. beside are the rows that explain it;
	// "-" stands for the part of the name before suffix, and a name that ends with "*" for
	// the sum of all rows whose names begin so.
	suffix string
	beside []string
	// says is a sentence on how to read the rows.
	says string
}{
	{
		"/ratio/vs-plain",
		[]string{"-/sandlane-fast/rps", "-/plain/rps", "-/sandlane-fast/envoy-cpu", "-/plain/envoy-cpu", "-/sandlane-fast/server-cpu"},
		"Where Envoy's CPU a request times its requests/s is close to a core, Envoy decides the rate.",
	},
	{
		"/ratio/cpu-vs-plain",
		[]string{"-/sandlane-fast/envoy-cpu", "-/plain/envoy-cpu", "-/sandlane-fast/server-cpu"},
		"The gateway folds marks and renews trust whatever the load.",
	},
	{
		"/ratio/p50-vs-plain",
		[]string{"-/sandlane-fast/p50", "-/plain/p50", "-/do-nothing/p50"},
		"The client's and the sandbox's part is in both.",
	},
	{
		"/ratio/cpu-vs-without",
		[]string{"-/sandlane-fast/envoy-cpu", "-/sandlane/envoy-cpu", "-/sandlane-fast/server-cpu", "-/sandlane/server-cpu"},
		"The module's look is Envoy's; what the gateway does for the table is its own.",
	},
	{
		"/ratio/vs-by-host",
		[]string{"-/sandlane-fast/rps", "-/by-host/rps", "-/sandlane-fast/envoy-cpu", "-/by-host/envoy-cpu", "-/sandlane-fast/share"},
		"Both keep the same addresses; what differs is how they are found.",
	},
	{
		"/ratio/vs-do-nothing",
		[]string{"-/sandlane/envoy-cpu", "-/do-nothing/envoy-cpu", "-/sandlane/server-cpu", "-/do-nothing/server-cpu", "-/sandlane/rps", "-/do-nothing/rps"},
		"Where Envoy's CPU a request times its requests/s is close to a core, Envoy decides the rate.",
	},
	{
		"/ratio/vs-one-sandbox",
		[]string{"-/sandlane/envoy-cpu", "-/sandlane-one/envoy-cpu", "-/do-nothing/envoy-cpu", "-/sandlane/server-cpu", "-/sandlane-one/server-cpu"},
		"What grows in front of the do-nothing server too is Envoy's.",
	},
	{
		"/both/time",
		[]string{"-/sandlane/cpu", "-/envoy/cpu"},
		"Envoy writes the page, the gateway reads it.",
	},
	{
		"/sandlane/hot-1",
		[]string{"-/golang-lru/hot-1", "-/map-mutex/hot-1"},
		"The budget is absolute and machines differ: compare with the library and the map.",
	},
	{
		"/sandlane/hit-1",
		[]string{"-/golang-lru/hit-1", "-/map-mutex/hit-1"},
		"The budget is absolute and machines differ: compare with the library and the map.",
	},
	{
		"/ratio/p50-vs-bare",
		[]string{"-/sandlane/latency", "-/bare/latency"},
		"The difference is everything but the writes.",
	},
	{
		"/ratio/passed-vs-allowed",
		[]string{"-/passed/p50", "-/connect/p50", "-/direct/p50"},
		"Allowed are 1.5 × direct's p50 and 0.3 ms; for intercepted requests 1 ms more.",
	},
	{
		"/ratio/intercepted-vs-allowed",
		[]string{"-/intercepted/p50", "-/passed/p50", "-/direct/p50"},
		"Allowed are 1.5 × direct's p50 and 0.3 ms; for intercepted requests 1 ms more.",
	},
	{
		"/sandlane/p95",
		[]string{"-/sandlane/latency", "-/bare/latency"},
		"The resume is one write, and an order to sandboxd before and after.",
	},
	{
		"/ratio/vs-bare",
		[]string{"-/sandlane/cpu-*", "-/bare/cpu-*"},
		"CPU of all programs: the ratio of both sides is what CPU alone would give.",
	},
}

// figure is the median of a row, and its unit.
type figure struct{ row, median, unit string }

// list lists figures. If several in a row have the same unit, only the last one shows it.
func list(all []figure) string {
	var b strings.Builder
	for i, f := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.row + " " + f.median)
		if i == len(all)-1 || all[i+1].unit != f.unit {
			b.WriteString(" " + f.unit)
		}
	}
	return b.String()
}

// why returns the medians of the rows that explain why a budget is missed, and how to read
// them.
func why(r *result.Result, budget string) (figures, says string) {
	for _, reason := range reasons {
		name, found := strings.CutSuffix(budget, reason.suffix)
		if !found {
			continue
		}
		var all []figure
		for _, beside := range reason.beside {
			if median, unit, ok := measured(r, strings.Replace(beside, "-", name, 1)); ok {
				all = append(all, figure{strings.TrimSuffix(strings.TrimPrefix(beside, "-/"), "-*"), number(median), unit})
			}
		}
		if len(all) > 0 {
			return list(all), reason.says
		}
	}
	return "not explained", ""
}

// measured returns the median of a row or, for a name that ends with "*", the sum of the
// medians of the rows whose names begin so; ok is false if the run has none.
func measured(r *result.Result, name string) (median float64, unit string, ok bool) {
	begin, several := strings.CutSuffix(name, "*")
	for _, row := range r.Rows {
		if len(row.Samples) > 0 && (row.Name == name || several && strings.HasPrefix(row.Name, begin)) {
			median, unit, ok = median+row.Summary().Median, row.Unit, true
		}
	}
	return median, unit, ok
}
