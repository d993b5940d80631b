package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Time limits: of one run of one test, and of building it on a busy machine.
const (
	testLimit  = 3 * time.Minute
	buildLimit = 5 * time.Minute
)

// result is how a mutant fared.
type result struct {
	mutant
	caught bool
	said   string        // what the test failed with
	took   time.Duration // of the test alone
	err    error
}

// runner works in a copy of the checkout. One goroutine uses it.
type runner struct{ dir string }

// unbroken runs the tests of one package's mutants as they are, and has what is
// wrong with those that do not pass, by their patterns. An error: the package does
// not build.
func (r *runner) unbroken(ctx context.Context, mutants []mutant) (map[string]error, error) {
	binary, err := r.build(ctx, mutants[0].pkg)
	if err != nil {
		return nil, err
	}
	broken := map[string]error{}
	seen := map[string]bool{}
	for _, m := range mutants {
		if seen[m.pattern] {
			continue
		}
		seen[m.pattern] = true
		out, err := r.run(ctx, binary, m.pkg, m.pattern)
		if err == nil && !strings.Contains(out, "--- PASS: ") {
			err = errors.New("there is no such test")
		}
		if err != nil {
			broken[m.pattern] = fmt.Errorf("%s %s does not pass unbroken: %w\n%s", m.pkg, m.pattern, err, tail(out))
		}
	}
	return broken, nil
}

// try applies one mutant, runs its test, and takes the change back.
func (r *runner) try(ctx context.Context, m mutant) (res result) {
	res.mutant = m
	files, err := changed(r.dir, m)
	if err != nil {
		res.err = fmt.Errorf("the mutant is stale: %w", err)
		return res
	}
	for path, text := range files {
		before, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			res.err = fmt.Errorf("applying the mutant: %w", err)
			return res
		}
		defer func() {
			if err := os.WriteFile(path, before, 0o644); err != nil {
				res.err = errors.Join(res.err, fmt.Errorf("taking the mutant back: %w", err))
			}
		}()
	}
	binary, err := r.build(ctx, m.pkg)
	if err != nil {
		res.err = fmt.Errorf("the mutant does not compile: %w", err)
		return res
	}
	start := time.Now()
	out, err := r.run(ctx, binary, m.pkg, m.pattern)
	res.took = time.Since(start)
	switch {
	case err == nil:
	case failed(out, m.test()):
		res.caught, res.said = true, complaint(out)
	default:
		res.err = fmt.Errorf("the test was not reached: %w\n%s", err, tail(out))
	}
	return res
}

// failed reports whether it was the named test that failed, or that did not end.
func failed(out, test string) bool {
	if strings.Contains(out, "kubetest: starting the control plane") {
		return false
	}
	return regexp.MustCompile(`(?m)^--- FAIL: `+test+`\b`).MatchString(out) ||
		strings.Contains(out, "panic: test timed out") ||
		strings.Contains(out, "panic: ") && strings.Contains(out, "=== RUN   "+test)
}

// complaint is how the first line begins in which a test says what is wrong; ""
// if it was stopped.
func complaint(out string) string {
	return strings.TrimSpace(regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: .{0,200}|^panic: .{0,200}`).FindString(out))
}

// build compiles a package's tests. Without -trimpath the compiler's cache would
// hold nothing of a copy made just now.
func (r *runner) build(ctx context.Context, pkg string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	binary := filepath.Join(r.dir, "mutants-test.exe")
	_, err := output(ctx, r.dir, "go", "test", "-c", "-trimpath", "-o", binary, pkg)
	return binary, err
}

func (r *runner) run(ctx context.Context, binary, pkg, pattern string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testLimit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.count=1", "-test.timeout="+testLimit.String(), "-test.run="+pattern)
	cmd.Dir = filepath.Join(r.dir, pkg)
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tail is the end of what a test said.
func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[max(len(lines)-20, 0):], "\n")
}
