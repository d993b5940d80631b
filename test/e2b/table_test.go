package e2b

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tableFile holds tables, each between two marks; the rest of it people write.
var tableFile = filepath.Join("..", "..", "docs", "e2b.md")

// checkTable compares what worked with a table in the documentation, or
// writes it with -update. It judges a complete run only.
func checkTable(t *testing.T, name string, features []feature, worked map[string]map[string]bool) {
	t.Helper()
	tableBegin := "<!-- " + name + ": go test ./test/e2b -update -->\n"
	tableEnd := "<!-- end of " + name + " -->\n"
	for _, s := range sdks {
		if len(worked[s.name]) == 0 {
			t.Logf("%s did not run: the table of %s is not looked at", s.name, tableFile)
			return
		}
	}
	text, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), tableBegin)
	_, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", tableFile)
	}
	want := head + tableBegin + table(features, worked) + tableEnd + tail
	if want == string(text) {
		return
	}
	if !*update {
		t.Errorf("the table of %s is not what was seen: run this test with -update", tableFile)
		return
	}
	if err := os.WriteFile(tableFile, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table has a line for each feature, with the SDKs that it works with where those are not
// all. Features of one kind that all have, such as "files: …", share a line.
func table(features []feature, worked map[string]map[string]bool) string {
	names := make([]string, len(sdks))
	for i, s := range sdks {
		names[i] = s.name
	}
	var lines []string
	kinds := map[string]int{} // by kind: its line
	for _, f := range features {
		var with []string
		for _, name := range names {
			if worked[name][f.name] {
				with = append(with, name)
			}
		}
		kind, rest, kept := strings.Cut(f.text, ": ")
		at, shared := kinds[kind]
		switch {
		case len(with) == 0:
			lines = append(lines, f.text+" (with none)")
		case len(with) < len(names):
			lines = append(lines, f.text+" (with "+strings.Join(with, ", ")+" alone)")
		case shared && kept:
			lines[at] += "; " + rest
		default:
			if kept {
				kinds[kind] = len(lines)
			}
			lines = append(lines, f.text)
		}
	}
	return "With " + strings.Join(names, ", ") + ":\n\n- " + strings.Join(lines, "\n- ") + "\n"
}
