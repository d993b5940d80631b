// Package checkout finds the files of this repository for tests that read or compile
// them: where the compiler found a source file is no path in a program built with
// -trimpath.
package checkout

import (
	"os"
	"path/filepath"
	"testing"
)

// Path is the path of a file of the repository. It may be called from any test, whose
// folder go test makes the current one: the repository's is the first above it that
// has a go.mod.
func Path(t testing.TB, elements ...string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(append([]string{dir}, elements...)...)
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("%s is in no checkout: no folder above it has a go.mod", here)
		}
	}
}
