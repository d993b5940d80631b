package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// Markdown returns the whole result as a page.
func Markdown(r *result.Result, plots []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks, %s (%s)\n\n", r.Started.Format("2006-01-02 15:04 UTC"), r.Plan)
	b.WriteString(facts(r))
	b.WriteString(headline(r))
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	for _, p := range plots {
		fmt.Fprintf(&b, "\n![%s](%s)\n", p, p)
	}
	section := ""
	for _, row := range r.Rows {
		if row.Section() != section {
			section = row.Section()
			b.WriteString("\n## " + section + "\n\n" + tableHead)
		}
		b.WriteString(line(row))
	}
	b.WriteString(published(r))
	return b.String()
}

const tableHead = "| row | median | 95 % interval | samples | unit | budget |\n|---|---|---|---|---|---|\n"

func facts(r *result.Result) string {
	m := r.Machine
	return fmt.Sprintf("%s, %d cores, %s, %s %s, %s/%s. %s; %s. Closed loops by %s. Load average at the start: %s%s. Took %s.%s\n\n",
		m.CPU, m.Cores, m.Memory, m.OS, m.Kernel, m.Go, m.Arch, r.Version, m.Envoy, m.Load, m.LoadAverage, crowded(m), r.Took, extent(r))
}

func extent(r *result.Result) string {
	if r.Extent == "" { // a result of an older version
		return ""
	}
	text := " " + r.Extent + "."
	if r.Stolen > 0.005 {
		text += fmt.Sprintf(" The hypervisor gave %s of the processors to others meanwhile.", percent(r.Stolen))
	}
	return text
}

// crowded returns a warning if the machine had other work.
func crowded(m result.Machine) string {
	if m.Crowded() {
		return " (not quiet, so less sure)"
	}
	return ""
}

func headline(r *result.Result) string {
	h := r.Headline
	if h.VsDoNothing == 0 {
		return ""
	}
	return fmt.Sprintf("**%s of the requests/s of a do-nothing ext_proc server in the same Envoy%s; %s of plain Envoy's%s** (%d pairs).\n\n",
		percent(h.VsDoNothing), span(h.VsDoNothingInterval), percent(h.VsPlain), span(h.VsPlainInterval), h.Pairs)
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f %%", 100*ratio) }

func span(interval []float64) string {
	if len(interval) != 2 {
		return ""
	}
	return fmt.Sprintf(" (%.1f–%.1f)", 100*interval[0], 100*interval[1])
}

func line(row *result.Row) string {
	if len(row.Samples) == 0 {
		return fmt.Sprintf("| %s | – | | 0 | %s | |\n", row.Name, row.Unit)
	}
	s := row.Summary()
	interval, budget, unit := "", "", row.Unit
	if s.Known {
		interval = number(s.Low) + " – " + number(s.High)
	}
	if row.Budget != nil {
		budget = verdict(row)
	}
	if row.Note != "" {
		unit += " (" + row.Note + ")"
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %s | %s |\n", row.Name, number(s.Median), interval, len(row.Samples), unit, budget)
}

// number shows four digits, which is more than the precision of any row.
func number(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", x)
	case a >= 100:
		return fmt.Sprintf("%.1f", x)
	case a >= 10:
		return fmt.Sprintf("%.2f", x)
	default:
		return fmt.Sprintf("%.3f", x)
	}
}

// tested counts the changes that have a verdict.
func tested(all []result.Change) (n int) {
	for _, c := range all {
		if c.Verdict != result.NoVerdict {
			n++
		}
	}
	return n
}

// Comparison returns a page with the changes from a to b.
func Comparison(a, b *result.Result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "A: %s, %s, %s\nB: %s, %s, %s\n", a.Started.Format("2006-01-02 15:04"), a.Version, a.Machine.CPU, b.Started.Format("2006-01-02 15:04"), b.Version, b.Machine.CPU)
	if a.Machine.CPU != b.Machine.CPU || a.Machine.Cores != b.Machine.Cores {
		out.WriteString("These are different machines: compare ratios only.\n")
	}
	out.WriteString("\n| row | A | B | B / A | p | verdict | unit |\n|---|---|---|---|---|---|---|\n")
	changes, alone := result.Compare(a, b)
	for _, c := range changes {
		p := fmt.Sprintf("%.3f", c.P)
		if c.Verdict == result.NoVerdict {
			p = fmt.Sprintf("n=%d+%d", c.OldN, c.NewN)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %.3f | %s | %s | %s |\n", c.Name, number(c.Old), number(c.New), c.Ratio, p, c.Verdict, c.Unit)
	}
	if n := tested(changes); n > 0 {
		fmt.Fprintf(&out, "\n%d rows were tested, each with a chance of 1 in 20 to be called moved though nothing did: expect about %.0f such.\n", n, float64(n)/20)
	}
	if len(alone) > 0 {
		fmt.Fprintf(&out, "\nOnly in one of them: %s\n", strings.Join(alone, ", "))
	}
	return out.String()
}
