package structure

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// maxLines bounds a file that people write.
const maxLines = 400

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.ContainsFunc(p.files, documented) {
			t.Errorf("%s: no package comment that begins with \"Package %s\", or \"Command …\" for a program", p.dir, p.files[0].syntax.Name)
		}
	}
}

// documented reports whether a file has a package comment of the usual form.
func documented(f file) bool {
	doc, name := f.syntax.Doc.Text(), f.syntax.Name.Name
	if name == "main" {
		return strings.HasPrefix(doc, "Command ")
	}
	return strings.HasPrefix(doc, "Package "+name+" ")
}

func TestFileLength(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if !f.generated && f.lines > maxLines {
				t.Errorf("%s has %d lines, more than %d: split it by concern", f.path, f.lines, maxLines)
			}
		}
	}
}

// maxFiles bounds the files of a folder, without its tests.
const maxFiles = 30

func TestFilesInAFolder(t *testing.T) {
	for _, p := range packages(t) {
		n := 0
		for _, f := range p.files {
			if !f.test {
				n++
			}
		}
		if n > maxFiles {
			t.Errorf("%s has %d files that are not tests, more than %d: give a story of it a folder", p.dir, n, maxFiles)
		}
	}
}

const bubbles = "test/bubble"

// Tests wait for conditions. Those that run in a bubble of testing/synctest may sleep:
// their time is virtual.
func TestNoSleepInTests(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			virtual := importsPath(f, "testing/synctest") || importsPath(f, module+"/"+bubbles)
			if f.test && !virtual && calls(f.syntax, "time", "Sleep") {
				t.Errorf("%s calls time.Sleep: wait for a condition, or use %s", f.path, bubbles)
			}
		}
	}
}

// The race detector aborts in bubbles that run on several processors.
func TestBubblesOnOneProcessor(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if p.dir != bubbles && calls(f.syntax, "synctest", "Test") {
				t.Errorf("%s calls synctest.Test: use %s", f.path, bubbles)
			}
		}
	}
}

func importsPath(f file, path string) bool {
	return slices.ContainsFunc(f.syntax.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"`+path+`"` })
}

// calls reports whether a file names this function of a package.
func calls(syntax *ast.File, pkg, name string) bool {
	found := false
	ast.Inspect(syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
				found = true
			}
		}
		return !found
	})
	return found
}

const builder = "kubeclient/writes"

// JSON Patches are built in one package.
func TestOneJSONPatchBuilder(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.test || f.generated || p.dir == builder {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if ok && (strings.Contains(lit.Value, `json:"op"`) || strings.Contains(lit.Value, `{"op":`)) {
					t.Errorf("%s builds a JSON Patch by itself: use %s", f.path, builder)
				}
				return true
			})
		}
	}
}

// judgesInvalid are the files that ask by themselves whether the API server found an object
// invalid, and why they may.
var judgesInvalid = map[string]string{
	"reconcilers/sandboxenv/materialise.go": "creates and merge patches have no tests that could have failed",
}

// The answer to a JSON Patch is judged where they are built: a 422 may be a test that
// failed or an object that is invalid, and apierrors.IsInvalid takes both for one.
func TestOneJudgeOfPatches(t *testing.T) {
	asked := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.test || p.dir == builder || !callsIsInvalid(f.syntax) {
				continue
			}
			asked[f.path] = true
			if judgesInvalid[f.path] == "" {
				t.Errorf("%s asks apierrors.IsInvalid: ask %s.Judge", f.path, builder)
			}
		}
	}
	for path := range judgesInvalid {
		if !asked[path] {
			t.Errorf("%s asks apierrors.IsInvalid no more: take it out of judgesInvalid", path)
		}
	}
}

func callsIsInvalid(syntax *ast.File) bool {
	found := false
	ast.Inspect(syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "IsInvalid" {
			found = true
		}
		return !found
	})
	return found
}
