package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/checkout"
)

// Block is one fenced block of a page.
type Block struct {
	// Line is where its text begins.
	Line int
	// Language is the first word after the fence. Where is the rest of that line: what runs
	// the commands of the block, or the name of the file that its text is.
	Language, Where string
	Text            string
}

// The values of Where of a block of commands.
const (
	// Up: test/docs runs it on a stack of `sandlane up`.
	Up = "up"
	// Node: it is for a cluster with the chart, as test/helm installs it; test/docs compares
	// it with the chart's values and the program's help.
	Node = "node"
	// NotRun begins the reason for which nothing runs it.
	NotRun = "not run: "
)

// OfUsers returns the users' pages, by their paths in the repository.
func OfUsers(t testing.TB) []string {
	t.Helper()
	root := checkout.Path(t)
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"README.md"}
	for _, page := range all {
		names = append(names, filepath.Join("docs", filepath.Base(page)))
	}
	return names
}

// Blocks returns the fenced blocks of a page. One that does not end fails the test.
func Blocks(t testing.TB, page string) (all []Block) {
	t.Helper()
	text, err := os.ReadFile(checkout.Path(t, page))
	if err != nil {
		t.Fatal(err)
	}
	var open *Block
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			language, where, _ := strings.Cut(info, " ")
			open = &Block{Line: number + 1, Language: language, Where: where}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.Text += line
		}
	}
	if open != nil {
		t.Fatalf("%s: the block of line %d does not end", page, open.Line)
	}
	return all
}
