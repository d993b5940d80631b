package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// peer is a figure that another project has published, and our row that comes nearest to
// it.
type peer struct {
	what, figure string
	source, date string
	differs      string
	row          string // empty if we have none
}

// peers were looked up on 2026-11-21. A figure is here only if its source says how it was
// measured. E2B's and other vendors' own start times are not, since no such source was
// found.
var peers = []peer{
	{
		"a claim from a warm pool, one after the other", "p50 50 and 64 ms, p95 80 ms (two runs)",
		"https://github.com/cocoonstack/sandbox-operator/issues/33", "2026-09-23",
		"agent-sandbox v1.0.3, two nodes, from create to Ready; ours to the first byte of a first request, without a node",
		"claims/first-1-gateways-1/sandlane/latency",
	},
	{
		"a claim from a warm pool, 20 at once", "p50 124 and 137 ms, p95 164 and 171 ms (two runs)",
		"https://github.com/cocoonstack/sandbox-operator/issues/33", "2026-09-23", "as above; ours are 32", "claims/first-32-gateways-3/sandlane/p50",
	},
	{
		"300 claims at once from a warm pool", "p50 1465 ms, p90 3201 ms; with a write-behind of 250 ms 1271 and 3158 ms",
		"https://github.com/kubernetes-sigs/agent-sandbox/pull/1359", "2026-08-12",
		"agent-sandbox on kops, from create to Ready", "claims/first-300-gateways-3/sandlane/p50",
	},
	{
		"3,600 claims on a pool of 3,700 in a continuous burst", "p99 851 ms, against a limit of 500 ms",
		"https://github.com/kubernetes-sigs/agent-sandbox/pull/1454", "2026-08-25",
		"agent-sandbox's load test, a regression mended since; as its controller counts", "",
	},
	{
		"writes to the API server a claim", "23.2 to 24.2",
		"https://github.com/cocoonstack/sandbox-operator/issues/33", "2026-09-23",
		"bursts of 200 claims, a pool of 40; ours is of a whole life", "control/life/sandlane/writes",
	},
	{
		"what ext_proc adds to a request", "3 ms on average",
		"https://github.com/envoyproxy/envoy/issues/16905", "2021-06-09",
		"headers and bodies both ways; ours is the whole request, headers one way",
		"dataplane/one/sandlane/p50",
	},
	{
		"plain Envoy, 16 connections", "p50 0.090 ms at 30,000 requests/s, 43,824/s at most",
		"https://github.com/envoyproxy/envoy/issues/19103", "2025-01-09",
		"Envoy 1.32 with nighthawk, hardware not named", "dataplane/hit/plain/rps",
	},
}

// published returns the section about the peers.
func published(r *result.Result) string {
	var b strings.Builder
	b.WriteString("\n## What others have published\n\n" +
		"Other machines and other questions: nothing follows from two figures in one line. Start times of E2B and other vendors come without a description of how they were measured.\n\n" +
		"| what | published | by | what differs | nearest row here |\n|---|---|---|---|---|\n")
	for _, p := range peers {
		ours := "none"
		if row := r.Row(p.row); row != nil && len(row.Samples) > 0 {
			ours = fmt.Sprintf("%s %s (`%s`)", number(row.Summary().Median), row.Unit, row.Name)
		}
		fmt.Fprintf(&b, "| %s | %s | [%s](%s) | %s | %s |\n", p.what, p.figure, p.date, p.source, p.differs, ours)
	}
	return b.String()
}
