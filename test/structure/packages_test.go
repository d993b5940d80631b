package structure

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/sandlane/sandlane"
	root   = "../.."
)

// pkg is one folder with Go files of this module.
type pkg struct {
	dir   string // below the root, with slashes
	files []file
}

type file struct {
	path      string // below the root, with slashes
	test      bool
	generated bool
	lines     int
	imports   []string // folders of this module
	syntax    *ast.File
}

// packages returns every package of the module in the order of their folders. It
// parses them once.
func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("found %d packages only: is %s the root?", len(all), root)
	}
	return all
}

var parse = sync.OnceValues(func() ([]pkg, error) {
	byDir := map[string]*pkg{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if rel != "." && skipped(name, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(rel) != ".go" {
			return nil
		}
		f, err := parseFile(name, rel)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
		}
		byDir[dir].files = append(byDir[dir].files, f)
		return nil
	})
	all := make([]pkg, 0, len(byDir))
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		all = append(all, *byDir[dir])
	}
	return all, err
})

// skipped reports whether a folder holds no code of this module, nor of bench, a module that is
// compiled in one workspace with it.
func skipped(name, base string) bool {
	if strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	_, workErr := os.Stat(filepath.Join(name, "go.work"))
	return err == nil && workErr != nil
}

func parseFile(name, rel string) (file, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	f := file{
		path:      rel,
		test:      strings.HasSuffix(rel, "_test.go"),
		generated: ast.IsGenerated(syntax),
		lines:     bytes.Count(text, []byte("\n")),
		syntax:    syntax,
	}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		if folder, ours := strings.CutPrefix(imported, module+"/"); ours {
			f.imports = append(f.imports, folder)
		}
	}
	return f, nil
}
