package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// budget is what is asked of a row; docs/design, chapter 7, says how budgets are stated.
type budget struct {
	row  string
	more bool // at least; else at most
	than float64
}

// budgets are all budgets. A budget whose row a run lacks is shown as not measured, so that
// none is lost with a case that failed or was left out.
var budgets = func() []budget {
	all := []budget{
		{"dataplane/hit/ratio/vs-do-nothing", true, 0.95},
		{"dataplane/hit/ratio/p99-vs-do-nothing", false, 1.1},
		{"dataplane/touch-10000/ratio/vs-do-nothing", true, 0.9},
		{"dataplane/fleet-10000/ratio/vs-one-sandbox", true, 0.75},
		{"dataplane/in-use-10000/sandlane/cpu", false, 50},
		{"dataplane/in-use-10000/both/time", false, 50},
		{"fastpath/hit/ratio/vs-plain", true, 0.85},
		{"fastpath/hit/ratio/vs-do-nothing", true, 2},
		{"fastpath/hit/ratio/cpu-vs-plain", false, 1.3},
		{"fastpath/one/ratio/p50-vs-plain", false, 1.25},
		{"fastpath/left/ratio/cpu-vs-without", false, 1.03},
		{"fastpath/misses/ratio/cpu-vs-without", false, 1.03},
		{"fastpath/fleet-10000/ratio/vs-by-host", true, 0.85},
		{"socket/streams-64/ratio/vs-do-nothing", true, 1},
		{"socket/streams-64/sandlane/allocations", false, 80},
		{"routes/100000/sandlane/hot-1", false, 100},
		{"routes/100000/sandlane/hit-1", false, 100},
		{"routes/100000/sandlane/hit-allocations", false, 0},
		{"routes/100000/sandlane/memory-beyond-key", false, 200},
		{"routes/100000/sandlane/whole", false, 100},
		{"claims/warm/ratio/p50-vs-bare", false, 1.3},
		{"claims/warm/ratio/p99-vs-bare", false, 3},
		{"claims/burst-32/ratio/vs-bare", true, 0.8},
		{"claims/burst-300/ratio/vs-bare", true, 0.8},
	}
	for _, format := range []string{"claims/first-%d-gateways-1/ratio/", "claims/first-%d-gateways-3/ratio/", "claims/create-%d/ratio/"} {
		name := func(n int) string { return fmt.Sprintf(format, n) }
		all = append(all,
			budget{name(1) + "p50-vs-bare", false, 1.3}, budget{name(1) + "p99-vs-bare", false, 3},
			budget{name(32) + "vs-bare", true, 0.8}, budget{name(300) + "vs-bare", true, 0.8})
	}
	return append(all,
		budget{"claims/pause/ratio/p50-vs-bare", false, 4},
		budget{"claims/resume/ratio/p50-vs-bare", false, 5},
		budget{"claims/wake/sandlane/p95", false, 100},
		budget{"claims/release/sandlane/p99", false, 50},
		budget{"egress/kept/ratio/passed-vs-allowed", false, 1},
		budget{"egress/kept/ratio/intercepted-vs-allowed", false, 1},
		budget{"egress/new/ratio/passed-vs-allowed", false, 1},
		budget{"egress/new/ratio/intercepted-vs-allowed", false, 1},
		budget{"egress/use/first/latency", false, 20},
		budget{"egress/fleet-1000/sandlane/memory", false, 256},
		budget{"idle/poll-100000/sandlane/cpu", false, 50},
		budget{"idle/index/sandlane/pod", false, 600},
		budget{"idle/index/sandlane/sandbox", false, 400},
		budget{"control/pod-event-10000/sandlane/time", false, 2},
		budget{"control/pod-event-10000/sandlane/allocated", false, 200},
		budget{"control/idle-check-100000/sandlane/time", false, 30},
		budget{"control/idle-check-100000/sandlane/allocated", false, 10_000},
		budget{"control/life/sandlane/writes", false, 15},
	)
}()

// Judge gives the rows of a result their budgets.
func Judge(r *result.Result) {
	for _, b := range budgets {
		if row := r.Row(b.row); row != nil {
			row.Budget = &result.Budget{More: b.more, Value: b.than}
		}
	}
}

// What a row can say of its budget.
const holds, missed, notDecided = "holds", "missed", "undecided"

// verdictWord says whether a budget holds, or that the run does not decide it.
func verdictWord(row *result.Row) string {
	switch {
	case undecided(row):
		return notDecided
	case row.Budget.Holds(row.Summary().Median):
		return holds
	}
	return missed
}

// verdict is the budget with what a row says of it, and how sure that is.
func verdict(row *result.Row) string {
	s := row.Summary()
	text := fmt.Sprintf("%s %s", row.Budget, verdictWord(row))
	switch {
	case undecided(row) && row.Budget.Holds(s.Median):
		return text + " (its median holds)"
	case undecided(row):
		return text + " (its median missed)"
	case !s.Known:
		return text + " (no interval)"
	}
	return text
}

// undecided reports whether the budget lies within the interval of the median.
func undecided(row *result.Row) bool {
	s := row.Summary()
	return s.Known && row.Budget.Holds(s.Low) != row.Budget.Holds(s.High)
}

// budgetList has a line for each budget that does not hold, is not decided or was not measured,
// with the medians of the rows that explain it, then how to read these, and counts the rest.
func budgetList(r *result.Result) string {
	var open strings.Builder
	held := 0
	notes, seen := []string{}, map[string]int{} // by sentence: its number
	for _, b := range budgets {
		row := r.Row(b.row)
		if row == nil || len(row.Samples) == 0 {
			fmt.Fprintf(&open, "- `%s`, %s: not measured\n", b.row, &result.Budget{More: b.more, Value: b.than})
			continue
		}
		s := row.Summary()
		measured := number(s.Median)
		if row.Unit != "ratio" {
			measured += " " + row.Unit
		}
		if s.Known {
			measured += fmt.Sprintf(" (%s–%s)", number(s.Low), number(s.High))
		}
		word := verdictWord(row)
		if word == holds {
			held++
			continue
		}
		beside, says := why(r, row.Name)
		if says != "" {
			if seen[says] == 0 {
				notes = append(notes, says)
				seen[says] = len(notes)
			}
			beside += fmt.Sprintf(" [%d]", seen[says])
		}
		fmt.Fprintf(&open, "- `%s`, %s: %s %s; %s\n", row.Name, row.Budget, word, measured, beside)
	}
	text := "Medians with their 95 % intervals; ratios have no unit.\n"
	if open.Len() > 0 {
		text += "Missed, or undecided where the budget lies within the interval, with the rows that explain it:\n\n" + open.String()
	}
	for i, n := range notes {
		if i == 0 {
			text += "\n"
		}
		text += fmt.Sprintf("%d. %s\n", i+1, n)
	}
	return text + fmt.Sprintf("\nThe other %d hold; `bench/runs` has them.\n", held)
}
