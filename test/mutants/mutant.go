package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one patch.
type mutant struct {
	name, file   string
	rule         string
	pkg, pattern string // of the test that must fail
}

// load reads the patches of a folder, in the order of their names.
func load(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, f := range files {
		m, err := parse(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no patches in %s", dir)
	}
	return all, nil
}

func parse(file string) (mutant, error) {
	f, err := os.Open(file)
	if err != nil {
		return mutant{}, err
	}
	defer f.Close()
	m := mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch")}
	if m.file, err = filepath.Abs(file); err != nil {
		return mutant{}, err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() && lines.Text() != "" {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "Rule":
			m.rule = value
		case "Test":
			m.pkg, m.pattern, _ = strings.Cut(value, " ")
		default:
			return mutant{}, fmt.Errorf("header line %q: want Rule or Test", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return mutant{}, err
	}
	if m.rule == "" || !strings.HasPrefix(m.pkg, "./") || !strings.HasPrefix(m.pattern, "^Test") {
		return mutant{}, fmt.Errorf("header: want `Rule: …` and `Test: ./package ^TestX$`, have %q, %q and %q", m.rule, m.pkg, m.pattern)
	}
	if _, err := regexp.Compile(m.pattern); err != nil {
		return mutant{}, fmt.Errorf("header: %w", err)
	}
	return m, nil
}

// test is the name of the top-level test, without its anchors and subtests.
func (m mutant) test() string {
	name, _, _ := strings.Cut(m.pattern, "/")
	return strings.TrimSuffix(strings.TrimPrefix(name, "^"), "$")
}
