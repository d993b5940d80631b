package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A mutant that no longer finds its code, or names a test that is gone, proves nothing.
func TestMutantsApply(t *testing.T) {
	const root = "../.."
	all, err := load("rules")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Errorf("only %d mutants", len(all))
	}
	for _, m := range all {
		files, err := changed(root, m)
		if err != nil {
			t.Errorf("%s is stale: %v", m.name, err)
		}
		for path, text := range files {
			if filepath.Ext(path) != ".go" {
				continue
			}
			if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s does not parse: %v", m.name, err)
			}
		}
		if !hasTest(t, filepath.Join(root, m.pkg), m.test()) {
			t.Errorf("%s: there is no test %s in %s", m.name, m.test(), m.pkg)
		}
		if !namesPage(m.rule) {
			t.Errorf("%s: its rule names no page of docs/design or docs that says so: %s", m.name, m.rule)
		}
	}
}

// pageName is the name of a page in docs/design, or in docs.
var pageName = regexp.MustCompile(`[a-z0-9/-]+\.md`)

// namesPage reports whether a rule says on which page it stands.
func namesPage(rule string) bool {
	for _, name := range pageName.FindAllString(rule, -1) {
		for _, folder := range []string{"../../docs/design", "../../docs"} {
			if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
				return true
			}
		}
	}
	return false
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^func ` + name + `\(`).Match(text) {
			return true
		}
	}
	return false
}

// The runner on a module of its own: one mutant that its test catches, one that
// it does not, one that does not compile, one that is stale.
func TestRunner(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("go.mod", "module example\n\ngo 1.24\n")
	write("a.go", "package a\n\nfunc add(x, y int) int {\n\treturn x + y\n}\n")
	write("a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif add(2, 2) != 4 {\n\t\tt.Error(\"no\")\n\t}\n}\n")
	rule := func(name, was, is string) mutant {
		t.Helper()
		m, err := parse(name, "Rule: sums (design.md 0)\nTest: ./ ^TestAdd$\nIn: . add\n\n- return "+was+"\n+ return "+is+"\n")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	r := &runner{dir: dir}
	caught := rule("caught", "x + y", "x - y")
	if broken, err := r.unbroken(t.Context(), []mutant{caught}); err != nil || len(broken) > 0 {
		t.Fatal(broken, err)
	}
	for _, tc := range []struct {
		mutant
		word, why string
	}{
		{caught, "caught", ""},
		{rule("survives", "x + y", "x * y"), "**survived**", ""},
		{rule("broken", "x + y", "x + z"), "**error**", "does not compile"},
		{rule("stale", "x - y", "x + y"), "**error**", "stale"},
		{caught, "caught", ""}, // the others have left nothing behind
	} {
		res := r.try(t.Context(), tc.mutant)
		if !strings.HasPrefix(res.word(), tc.word) || tc.why != "" && (res.err == nil || !strings.Contains(res.err.Error(), tc.why)) {
			t.Errorf("%s: %s %v", tc.name, res.word(), res.err)
		}
		if res.caught != (res.said == "a_test.go:7: no") {
			t.Errorf("%s: the test said %q", tc.name, res.said)
		}
	}
	gone := caught
	gone.pattern = "^TestSub$"
	if broken, err := r.unbroken(t.Context(), []mutant{caught, gone}); err != nil || broken[gone.pattern] == nil || broken[caught.pattern] != nil {
		t.Errorf("a test that does not exist: %v %v", broken, err)
	}
}

// A run of some mutants replaces their rows alone; a mutant that is gone has none.
func TestPage(t *testing.T) {
	m := func(name string) mutant {
		return mutant{name: name, rule: "r (design.md 1)", pkg: "./a", pattern: "^TestX$"}
	}
	first := page([]mutant{m("a"), m("b"), m("gone")}, []result{{mutant: m("a"), caught: true}, {mutant: m("b")}, {mutant: m("gone")}}, "")
	then := page([]mutant{m("a"), m("b"), m("c")}, []result{{mutant: m("b"), caught: true}}, first)
	for _, want := range []string{"| a | r (design.md 1) | `./a` `TestX` | caught in 0.0 s |\n", "| b | r (design.md 1) | `./a` `TestX` | caught in 0.0 s |\n", "| c | r (design.md 1) | `./a` `TestX` | not tried |\n", "2 of 3 caught, 0 survived, 1 could not be tried"} {
		if !strings.Contains(then, want) {
			t.Errorf("the page lacks %q:\n%s", want, then)
		}
	}
	if strings.Contains(then, "gone") || !strings.Contains(first, "1 of 3 caught, 2 survived") {
		t.Errorf("first:\n%s\nthen:\n%s", first, then)
	}
}

func TestFiles(t *testing.T) {
	const head = "Rule: x (design.md 4)\nTest: ./a ^TestX$\n"
	for name, text := range map[string]string{
		"no rule": "Test: ./a ^TestX$\nIn: a f\n\n- x\n", "no test": "Rule: x (design.md 4)\nIn: a f\n\n- x\n",
		"no pattern": "Rule: x\nTest: ./a\nIn: a f\n\n- x\n", "another line": head + "Subject: y\n\n",
		"no place": head + "\n- x\n", "no function": head + "In: a\n\n- x\n", "nothing removed": head + "In: a f\n\n+ x\n",
		"no change": head + "In: a f\n", "a comment is no code": head + "In: a f\n\n- // x\n",
	} {
		if m, err := parse("m", text); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// Code is found in its declaration alone, once, whatever the white space and comments.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	source := "package a\n\nconst (\n\tx = 1\n\ty = 1\n)\n\nfunc (s *set[K]) get(k K) int {\n\t// comment\n\tif  s.m[k] > 0 { // why\n\t\treturn x\n\t}\n\treturn x\n}\n\nfunc get() int { return x }\n"
	for name, text := range map[string]string{
		"a.go": source, "a_test.go": source, "b_test.go": source,
		"c.c": "int f(int a);\n// f(x) {\nstatic int f(int a) {\n  if (a == '}') { return 1; }\n  return g(a->b);\n}\nint g(int a) { return f(a); }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		edit
		want, why string
	}{
		{edit{".", "(*set).get", "if s.m[k] > 0 {\nreturn x", "if true {\nreturn x"}, "\tif true {\nreturn x\n\t}\n\treturn x\n}", ""},
		{edit{".", "get", "return x", "return y"}, "func get() int { return y }", ""},
		{edit{".", "const y", "1", "2"}, "\tx = 1\n\ty = 2\n", ""},
		{edit{".", "f", "return g(a->b)", "return 0"}, "return 0;\n}\nint g", ""},
		{edit{".", "(*set).get", "return x", "return y"}, "", "2 times"},
		{edit{".", "get", "return z", "return y"}, "", "0 times"},
		{edit{".", "set.get", "return x", "return y"}, "", "no such declaration"},
	} {
		files, err := changed(dir, mutant{edits: []edit{tc.edit}})
		if tc.why != "" {
			if err == nil || !strings.Contains(err.Error(), tc.why) {
				t.Errorf("%v: %v", tc.edit, err)
			}
			continue
		}
		if err != nil || len(files) != 1 {
			t.Errorf("%v: %d files, %v", tc.edit, len(files), err)
		}
		for _, text := range files {
			if !strings.Contains(string(text), tc.want) {
				t.Errorf("%v: %s", tc.edit, text)
			}
		}
	}
}
