package structure

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A module outside this one can use what is exported: its examples compile, against the
// versions that this repository has pinned. Package claims runs one.
func TestLibraryExampleCompiles(t *testing.T) {
	dir := t.TempDir()
	for to, from := range map[string]string{"go.mod": root + "/library/example/go.mod", "go.sum": root + "/go.sum"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-modfile="+filepath.Join(dir, "go.mod"), "-mod=mod", "-o", filepath.Join(dir, "bin")+"/", "./...")
	cmd.Dir = root + "/library/example"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
