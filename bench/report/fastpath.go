package report

import (
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// fastPath returns the table of the floors and of Sandlane without and with its module;
// empty if they were not measured.
func fastPath(r *result.Result) string {
	var b strings.Builder
	for _, of := range []struct{ name, connections string }{{"hit", "32 connections"}, {"one", "one connection"}} {
		for _, side := range []struct{ name, title string }{
			{"plain", "plain Envoy"}, {"do-nothing", "do-nothing ext_proc server"}, {"sandlane", "Sandlane, ExtProc answers"}, {"sandlane-fast", "Sandlane, Envoy answers"},
		} {
			cells := []string{}
			for _, figure := range []string{"rps", "p50", "p99", "envoy-cpu", "server-cpu"} {
				cell := ""
				if row := r.Row("fastpath/" + of.name + "/" + side.name + "/" + figure); row != nil && len(row.Samples) > 0 {
					cell = number(row.Summary().Median)
				}
				cells = append(cells, cell)
			}
			if cells[0] != "" {
				fmt.Fprintf(&b, "| %s, %s | %s |\n", side.title, of.connections, strings.Join(cells, " | "))
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n## With and without the module\n\n`design/fastpath.md`. Medians; the last two columns are µs of CPU a request.\n\n" +
		"| | requests/s | p50 µs | p99 µs | Envoy | server |\n|---|---|---|---|---|---|\n" + b.String()
}
