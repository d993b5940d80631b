package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// pageName is how a page names another one, and perhaps a heading of it.
	pageName = regexp.MustCompile("`([A-Za-z0-9_./-]+\\.md)`(?:, \"([^\"]+)\")?")
	// docsPage is how everything else names a page of docs.
	docsPage = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)
	// conflict is the mark of a merge that was not resolved.
	conflict = regexp.MustCompile(`(?m)^(?:<{7}|>{7}) `)
)

// Every page, and every heading of one, that a page, a script or a comment leads to
// is there, and no file has the marks of an unresolved merge.
func TestPages(t *testing.T) {
	named := 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && skipped(name, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".md", ".sh", ".go", ".py", ".yaml", ".patch"}, filepath.Ext(name)) && entry.Name() != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if conflict.Match(text) {
			t.Errorf("%s has the marks of an unresolved merge", name)
		}
		for _, page := range docsPage.FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s names %s, which is not there", name, page)
			}
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		for _, m := range pageName.FindAllStringSubmatch(string(text), -1) {
			named++
			if page := find(filepath.Dir(name), m[1]); page == "" {
				t.Errorf("%s names %s, which is not there", name, m[1])
			} else if m[2] != "" && !hasHeading(t, page, m[2]) {
				t.Errorf("%s: %s has no heading %q", name, m[1], m[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if named < 50 {
		t.Errorf("only %d names were found: the pattern has rotted", named)
	}
}

// find returns where a page is that a page in dir names: beside it, at the root, or
// in docs or docs/design. Empty means nowhere.
func find(dir, page string) string {
	for _, base := range []string{dir, root, filepath.Join(root, "docs"), filepath.Join(root, "docs", "design")} {
		if _, err := os.Stat(filepath.Join(base, page)); err == nil {
			return filepath.Join(base, page)
		}
	}
	return ""
}

func hasHeading(t *testing.T, page, heading string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "#"); found && strings.TrimSpace(strings.TrimLeft(rest, "#")) == heading {
			return true
		}
	}
	return false
}
