package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// unbroken runs the tests of all mutants as they are.
func (r *runner) unbroken(ctx context.Context, all []mutant) error {
	byPackage := map[string][]string{}
	for _, m := range all {
		if !slices.Contains(byPackage[m.pkg], m.pattern) {
			byPackage[m.pkg] = append(byPackage[m.pkg], m.pattern)
		}
	}
	for pkg, patterns := range byPackage {
		binary, err := r.build(ctx, pkg)
		if err != nil {
			return err
		}
		for _, p := range patterns {
			start := time.Now()
			out, err := r.run(ctx, binary, pkg, p)
			fmt.Printf("unbroken  %-28s %-60s %5.1f s\n", pkg, p, time.Since(start).Seconds())
			if err != nil || !strings.Contains(out, "--- PASS: ") {
				return fmt.Errorf("%s %s does not pass unbroken: %w\n%s", pkg, p, err, tail(out))
			}
		}
	}
	return nil
}

// try applies one mutant, runs its test, and takes the patch back.
func (r *runner) try(ctx context.Context, m mutant) (res result) {
	res.mutant = m
	if _, err := output(ctx, r.dir, "git", "apply", m.file); err != nil {
		res.err = fmt.Errorf("the patch is stale: %w", err)
		return res
	}
	defer func() {
		if _, err := output(context.WithoutCancel(ctx), r.dir, "git", "apply", "-R", m.file); err != nil {
			res.err = errors.Join(res.err, fmt.Errorf("taking the patch back: %w", err))
		}
	}()
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

func (r *runner) build(ctx context.Context, pkg string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	binary := filepath.Join(r.dir, "mutants-test.exe")
	_, err := output(ctx, r.dir, "go", "test", "-c", "-o", binary, pkg)
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
