package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/modfile"
)

// A module of this repository that uses this one has its versions of what both need: what it
// tests and measures is what is released, and no package is compiled twice.
func TestModulesHaveTheSameVersions(t *testing.T) {
	ours, users := required(t, filepath.Join(root, "go.mod")), 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		theirs := required(t, name)
		if theirs[module] == "" {
			return nil
		}
		users++
		for path, version := range theirs {
			if want := ours[path]; want != "" && version != want {
				t.Errorf("%s has %s %s, and the root's go.mod %s", name, path, version, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if users < 3 {
		t.Errorf("found only %d modules that use this one", users)
	}
}

// required returns the modules that a go.mod requires, with their versions.
func required(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range f.Require {
		all[r.Mod.Path] = r.Mod.Version
	}
	return all
}
