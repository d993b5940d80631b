package helpers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func TestExtractWritesExecutables(t *testing.T) {
	built := fstest.MapFS{"bin/podinit": {Data: []byte("one")}, "bin/echo": {Data: []byte("two")}, "bin/sandboxd": {Data: []byte("three")}}
	dir := filepath.Join(t.TempDir(), "new")
	for range 2 { // the second replaces
		if err := extract(built, dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(Names) {
		t.Fatalf("entries %v, %v: want exactly the programs", entries, err)
	}
	info, err := os.Stat(filepath.Join(dir, "podinit"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("podinit: %v, %v", info.Mode(), err)
	}
	if raw, _ := os.ReadFile(filepath.Join(dir, "echo")); string(raw) != "two" {
		t.Errorf("echo holds %q", raw)
	}
}

func TestExtractModule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := extractModule(fstest.MapFS{}, dir); err == nil {
		t.Error("a module out of nothing")
	}
	path, err := extractModule(fstest.MapFS{"bin/fastpath.so": {Data: []byte("module")}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != "module" {
		t.Errorf("the module holds %q", raw)
	}
}

func TestExtractSaysWhatIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := extract(fstest.MapFS{"bin/echo": {}}, dir); !errors.Is(err, ErrNotBuilt) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("something was written")
	}
}
