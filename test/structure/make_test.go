package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var (
	target = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	told   = regexp.MustCompile("`make ([a-z][a-z0-9-]*)|(?m:^ *(?:\\$ )?make ([a-z][a-z0-9-]*))")
)

// Every target that a page, a script or a comment tells people to make is one of the
// Makefile's.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	named := 0
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && skipped(name, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".md", ".sh", ".go"}, filepath.Ext(name)) && entry.Name() != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range told.FindAllStringSubmatch(string(text), -1) {
			named++
			if one := m[1] + m[2]; !slices.Contains(targets, one) {
				t.Errorf("%s names `make %s`, which the Makefile has not", name, one)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if named < 20 {
		t.Errorf("only %d names were found: the pattern has rotted", named)
	}
}
