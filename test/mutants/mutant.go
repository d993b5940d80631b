package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one rule that is broken on purpose.
type mutant struct {
	name         string
	rule         string
	pkg, pattern string // of the test that must fail
	edits        []edit
}

// edit replaces code of one declaration. The code is compared by its tokens, so white
// space, line breaks and comments do not matter.
type edit struct {
	folder string // of the package, or of the C files, below the checkout
	decl   string // "name", "(*T).name" or "T.name" of a function, or "const x", "var x", "type T", `import "path"`
	was    string // stands there exactly once
	is     string
}

func (e edit) String() string { return fmt.Sprintf("%s %s", e.folder, e.decl) }

// load reads the mutants of a folder, in the order of their names.
func load(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.mutant"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(f), ".mutant"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no mutants in %s", dir)
	}
	return all, nil
}

// parse reads one mutant, in the form that the package comment shows.
func parse(name, text string) (mutant, error) {
	m := mutant{name: name}
	var folder, decl string
	var e *edit // the one that the next lines belong to; nil: none yet
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			e = nil
		case line[0] == '-' || line[0] == '+':
			if folder == "" {
				return mutant{}, fmt.Errorf("line %d: code before a line `In: folder function`", i+1)
			}
			// A removed line after an added one begins the next edit.
			if e == nil || line[0] == '-' && e.is != "" {
				m.edits = append(m.edits, edit{folder: folder, decl: decl})
				e = &m.edits[len(m.edits)-1]
			}
			code := strings.TrimPrefix(line[1:], " ") + "\n"
			if line[0] == '-' {
				e.was += code
			} else {
				e.is += code
			}
		case key == "Rule":
			m.rule = value
		case key == "Test":
			m.pkg, m.pattern, _ = strings.Cut(value, " ")
		case key == "In":
			folder, decl, _ = strings.Cut(value, " ")
			if decl == "" {
				return mutant{}, fmt.Errorf("line %d: %q: want `In: folder function`", i+1, line)
			}
			e = nil
		default:
			return mutant{}, fmt.Errorf("line %d: %q: want Rule, Test, In, or code behind - or +", i+1, line)
		}
	}
	if m.rule == "" || !strings.HasPrefix(m.pkg, "./") || !strings.HasPrefix(m.pattern, "^Test") {
		return mutant{}, fmt.Errorf("want `Rule: …` and `Test: ./package ^TestX$`, have %q, %q and %q", m.rule, m.pkg, m.pattern)
	}
	if _, err := regexp.Compile(m.pattern); err != nil {
		return mutant{}, err
	}
	if len(m.edits) == 0 {
		return mutant{}, fmt.Errorf("it changes nothing")
	}
	for _, e := range m.edits {
		if len(tokens(e.was)) == 0 {
			return mutant{}, fmt.Errorf("%s: no code to replace: repeat in + what stands beside the new code", e)
		}
	}
	return m, nil
}

// test is the name of the top-level test, without its anchors and subtests.
func (m mutant) test() string {
	name, _, _ := strings.Cut(m.pattern, "/")
	return strings.TrimSuffix(strings.TrimPrefix(name, "^"), "$")
}
