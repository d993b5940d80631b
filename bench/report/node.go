package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// nodeRows are the rows that are timed on a real node, each with the row that answers the
// same question without a node; empty if there is none.
var nodeRows = []struct{ row, what, without string }{
	{result.NodeClaim, "a claim: a first request until it is answered, by a warm pod", "claims/first-1-gateways-1/sandlane/latency"},
	{result.NodeCreatedToIdle, "a pod created, until it is stock", ""},
	{result.NodeEndedToIdle, "a sandbox ended, until its pool of one pod has stock again", ""},
}

// onNode returns the section about a run on a real node, beside the rows of a run without a
// node; empty if there is no run on a node.
func onNode(r, node *result.Result) string {
	if node == nil {
		return ""
	}
	var b strings.Builder
	m := node.Machine
	fmt.Fprintf(&b, "\n## On a real node\n\n`SANDLANE_NODE_RESULT=… make node-test` times this on one node with the Helm chart (two gateways, two controllers), one sandbox after the other: "+
		"%s, %d cores, %s%s, %s.\n\n"+
		"| what | median | longest | samples | without a node |\n|---|---|---|---|---|\n",
		m.CPU, m.Cores, node.Started.Format("2006-01-02"), crowded(m), node.Version)
	for _, of := range nodeRows {
		row := node.Row(of.row)
		if row == nil || len(row.Samples) == 0 {
			continue
		}
		s, interval, without := row.Summary(), "", "–"
		if s.Known {
			interval = fmt.Sprintf(" (%s–%s)", number(s.Low), number(s.High))
		}
		if of.without != "" {
			without = "not measured"
			if w := r.Row(of.without); w != nil && len(w.Samples) > 0 {
				without = fmt.Sprintf("%s %s (`%s`)", number(w.Summary().Median), w.Unit, w.Name)
			}
		}
		fmt.Fprintf(&b, "| %s | %s %s%s | %s | %d | %s |\n", of.what, number(s.Median), row.Unit, interval, number(slices.Max(row.Samples)), len(row.Samples), without)
	}
	return b.String()
}
