package structure

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// roomsPage holds the import table of the architecture: which folders of this
// module a folder may import.
const roomsPage = root + "/docs/design/rooms.md"

// readRooms returns that table: folder → folders that it may import.
func readRooms(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(roomsPage)
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		folder := quoted(cells[0])
		if !strings.HasPrefix(line, "|") || len(folder) == 0 {
			continue
		}
		if len(cells) != 3 || len(folder) != 1 {
			t.Fatalf("%s: a row is | one folder | job | folders it may import |, not %q", roomsPage, line)
		}
		if _, twice := rooms[folder[0]]; twice {
			t.Fatalf("%s: two rows for %s", roomsPage, folder[0])
		}
		rooms[folder[0]] = quoted(cells[2])
	}
	if len(rooms) < 20 {
		t.Fatalf("%s: found %d rows only", roomsPage, len(rooms))
	}
	return rooms
}

// quoted returns what stands between backquotes.
func quoted(cell string) []string {
	found := []string{}
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			found = append(found, part)
		}
	}
	return found
}

var testsMayImport = []string{"test", "library", "api"}

func TestImports(t *testing.T) {
	mayImport := readRooms(t)
	for _, p := range packages(t) {
		row, found := rowOf(mayImport, p.dir)
		if !found {
			t.Errorf("%s: no row in docs/design/rooms.md: add one", p.dir)
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

// The rows are there for a reason: each names a folder that exists, and lets import what
// is imported, be it by tests alone.
func TestImportTableIsCurrent(t *testing.T) {
	mayImport, dirs, imports := readRooms(t), []string{}, map[string][]string{}
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
				t.Errorf("row %s: nothing imports %s: take it out", row, folder)
			}
		}
		for _, folder := range append([]string{row}, list...) {
			if !slices.ContainsFunc(dirs, func(dir string) bool { return covers(folder, dir) }) {
				t.Errorf("row %s: there is no package in %s", row, folder)
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
