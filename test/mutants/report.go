package main

import (
	"fmt"
	"strings"
)

// page is docs/mutants.md.
func page(results []result) string {
	var b strings.Builder
	b.WriteString("<!-- Written by `make mutants`. Do not edit. -->\n")
	b.WriteString("# Mutants\n\n")
	b.WriteString("Each line breaks one rule of `design/design.md` on purpose (`test/mutants/patches`); the test beside it must fail. The time is that of the test.\n\n")
	fmt.Fprintf(&b, "Last run: %s.\n\n", summary(results))
	b.WriteString("| mutant | rule | test | |\n|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | `%s` `%s` | %s |\n", r.name, r.rule, r.pkg, strings.Trim(r.pattern, "^$"), r.word())
	}
	return b.String()
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

func summary(results []result) string {
	caught, survived, broken := 0, 0, 0
	for _, r := range results {
		switch {
		case r.err != nil:
			broken++
		case r.caught:
			caught++
		default:
			survived++
		}
	}
	return fmt.Sprintf("%d of %d caught, %d survived, %d could not be tried", caught, len(results), survived, broken)
}
