package main

import (
	"fmt"
	"strings"
)

// page is test/mutants/results.md: a row for each mutant that there is, of this run or,
// where it was not tried, of the page before.
func page(all []mutant, results []result, before string) string {
	rows := map[string]string{}
	for line := range strings.Lines(before) {
		if name, ok := rowName(line); ok {
			rows[name] = line
		}
	}
	for _, r := range results {
		rows[r.name] = fmt.Sprintf("| %s | %s | `%s` `%s` | %s |\n", r.name, r.rule, r.pkg, strings.Trim(r.pattern, "^$"), r.word())
	}
	var table strings.Builder
	var verdicts []string
	for _, m := range all {
		row, ok := rows[m.name]
		if !ok {
			row = fmt.Sprintf("| %s | %s | `%s` `%s` | not tried |\n", m.name, m.rule, m.pkg, strings.Trim(m.pattern, "^$"))
		}
		table.WriteString(row)
		verdicts = append(verdicts, verdict(row))
	}
	return "<!-- Written by `make mutants`. Do not edit. -->\n" +
		"# Mutants\n\n" +
		"Each line breaks one rule of `docs/design/` or `docs/` on purpose (`rules/`); the test beside it must fail. The time is that of the test.\n\n" +
		"Last runs: " + summary(verdicts) + ".\n\n" +
		"| mutant | rule | test | |\n|---|---|---|---|\n" + table.String()
}

// rowName is the mutant of a row of the page's table.
func rowName(line string) (string, bool) {
	cells := strings.Split(line, " | ")
	if len(cells) != 4 || !strings.HasPrefix(line, "| ") || cells[0] == "| mutant" {
		return "", false
	}
	return strings.TrimPrefix(cells[0], "| "), true
}

// verdict is the last cell of a row.
func verdict(row string) string {
	cells := strings.Split(row, " | ")
	return strings.TrimSuffix(cells[len(cells)-1], " |\n")
}

func (r result) word() string {
	switch {
	case r.err != nil:
		return "**error**"
	case r.caught:
		return fmt.Sprintf("caught in %.1f s", r.took.Seconds())
	}
	return "**survived**"
}

func words(results []result) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.word())
	}
	return all
}

func summary(verdicts []string) string {
	caught, survived := 0, 0
	for _, v := range verdicts {
		switch {
		case strings.HasPrefix(v, "caught"):
			caught++
		case v == "**survived**":
			survived++
		}
	}
	return fmt.Sprintf("%d of %d caught, %d survived, %d could not be tried", caught, len(verdicts), survived, len(verdicts)-caught-survived)
}

// line says how a mutant fared, and what its test or the trouble said.
func line(i, n int, res result) string {
	said := res.said
	if res.err != nil {
		said = res.err.Error()
	}
	return fmt.Sprintf("%3d of %d  %-40s %s\n           %s\n", i, n, res.name, res.word(), said)
}
