package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A patch that no longer applies, or names a test that is gone, proves nothing.
func TestPatchesApply(t *testing.T) {
	const root = "../.."
	all, err := load("patches")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Errorf("only %d mutants", len(all))
	}
	for _, m := range all {
		if _, err := output(t.Context(), root, "git", "apply", "--check", m.file); err != nil {
			t.Errorf("%s does not apply any more: %v", m.name, err)
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
	patch := func(name, was, is string) mutant {
		t.Helper()
		m, err := parse(write(name+".patch", "Rule: sums (design.md 0)\nTest: ./ ^TestAdd$\n\n--- a/a.go\n+++ b/a.go\n"+
			"@@ -3,3 +3,3 @@\n func add(x, y int) int {\n-\treturn "+was+"\n+\treturn "+is+"\n }\n"))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	r := &runner{dir: dir}
	caught := patch("caught", "x + y", "x - y")
	if broken, err := r.unbroken(t.Context(), []mutant{caught}); err != nil || len(broken) > 0 {
		t.Fatal(broken, err)
	}
	for _, tc := range []struct {
		mutant
		word, why string
	}{
		{caught, "caught", ""},
		{patch("survives", "x + y", "x * y"), "**survived**", ""},
		{patch("broken", "x + y", "x + z"), "**error**", "does not compile"},
		{patch("stale", "x - y", "x + y"), "**error**", "stale"},
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

func TestHeaders(t *testing.T) {
	for name, text := range map[string]string{
		"no rule": "Test: ./a ^TestX$\n\n", "no test": "Rule: x (design.md 4)\n\n",
		"no pattern": "Rule: x\nTest: ./a\n\n", "another line": "Rule: x\nTest: ./a ^TestX$\nSubject: y\n\n",
	} {
		path := filepath.Join(t.TempDir(), "m.patch")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := parse(path); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}
