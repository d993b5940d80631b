package structure

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// importsFile says which folders of this module a folder may import.
const importsFile = "imports.txt"

// readImports returns that list: folder → folders that it may import.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(importsFile)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		folder, list, ok := strings.Cut(line, ":")
		if _, twice := rows[folder]; !ok || twice {
			t.Fatalf("%s: a line is \"folder: folders that it may import\", one for a folder, not %q", importsFile, line)
		}
		rows[folder] = strings.Fields(list)
	}
	if len(rows) < 20 {
		t.Fatalf("%s: found %d lines only", importsFile, len(rows))
	}
	return rows
}

var testsMayImport = []string{"test", "library", "api"}

func TestImports(t *testing.T) {
	mayImport := readImports(t)
	for _, p := range packages(t) {
		row, found := rowOf(mayImport, p.dir)
		if !found {
			t.Errorf("%s: no line in test/structure/%s: add one", p.dir, importsFile)
			continue
		}
		allowed := append([]string{p.dir, "failpoint"}, mayImport[row]...)
		if row != p.dir {
			allowed = append(allowed, row)
		}
		for _, f := range p.files {
			for _, imported := range f.imports {
				if coversAny(allowed, imported) || f.test && coversAny(testsMayImport, imported) {
					continue
				}
				t.Errorf("%s imports %s: %s may import only %v", f.path, imported, row, mayImport[row])
			}
		}
	}
}

// The lines are there for a reason: each names a folder that exists, and lets import what
// is imported, be it by tests alone.
func TestImportTableIsCurrent(t *testing.T) {
	mayImport, dirs, imports := readImports(t), []string{}, map[string][]string{}
	for _, p := range packages(t) {
		dirs = append(dirs, p.dir)
		row, _ := rowOf(mayImport, p.dir)
		for _, f := range p.files {
			imports[row] = append(imports[row], f.imports...)
		}
	}
	for row, list := range mayImport {
		for _, folder := range list {
			if !slices.ContainsFunc(imports[row], func(imported string) bool { return covers(folder, imported) }) {
				t.Errorf("%s, %s: nothing imports %s: take it out", importsFile, row, folder)
			}
		}
		for _, folder := range append([]string{row}, list...) {
			if !slices.ContainsFunc(dirs, func(dir string) bool { return covers(folder, dir) }) {
				t.Errorf("%s, %s: there is no package in %s", importsFile, row, folder)
			}
		}
	}
}

// rowOf returns the closest row at or above dir.
func rowOf(mayImport map[string][]string, dir string) (string, bool) {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, found := mayImport[dir]; found {
			return dir, true
		}
	}
	return "", false
}

func covers(folder, dir string) bool {
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}

func coversAny(folders []string, dir string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return covers(folder, dir) })
}
