// Package pages reads the documentation, so that a test can hold the code against it:
// Rows returns one table of docs/design, cell by cell, Blocks the fenced blocks of a
// users' page. Tests of the packages that a page describes call it, and test/docs.
package pages

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/checkout"
)

// None is the cell of something that does not apply.
const None = "–"

// Rows returns the rows of the table whose first row is header, in the page of that
// name in docs/design: each a map from the header's cell to the row's. A page or
// table that is missing fails the test.
func Rows(t *testing.T, page string, header ...string) []map[string]string {
	t.Helper()
	text, err := os.ReadFile(checkout.Path(t, "docs", "design", page))
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	inside := false
	for line := range strings.Lines(string(text)) {
		cells := split(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case slices.Equal(cells, header):
			inside = true
		case inside && !strings.HasPrefix(line, "|---"):
			if len(cells) != len(header) {
				t.Fatalf("%s: %d cells, not %d: %q", page, len(cells), len(header), line)
			}
			row := map[string]string{}
			for i, name := range header {
				row[name] = cells[i]
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s: no table with the header %q", page, header)
	}
	return rows
}

func split(line string) []string {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// NoPod returns the chain of docs/design/no-pod.md.
func NoPod(t *testing.T) []map[string]string {
	t.Helper()
	return Rows(t, "no-pod.md", "why", "schedule", "error", "a request's answer", "create")
}
