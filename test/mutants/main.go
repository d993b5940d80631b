package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "run only the mutants whose names match; the page keeps the rows of the others")
	jobs := flag.Int("p", 2, "how many packages are worked on at once, each in a copy of the checkout of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, max(*jobs, 1)); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run does what the package comment says.
func run(ctx context.Context, only string, jobs int) error {
	out, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(out))
	all, err := load(filepath.Join(root, "test", "mutants", "rules"))
	if err != nil {
		return err
	}
	pick, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	picked := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !pick.MatchString(m.name) })
	began := time.Now()
	results, err := tryAll(ctx, root, picked, jobs)
	if err != nil {
		return err
	}
	fmt.Printf("mutants: %s, in %v\n", summary(words(results)), time.Since(began).Round(time.Second))
	path := filepath.Join(root, "test", "mutants", "results.md")
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("reading the page of the run before: %w", err)
	}
	if err := os.WriteFile(path, []byte(page(all, results, string(before))), 0o644); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r result) bool { return r.err != nil || !r.caught }) {
		return errors.New("not all mutants were caught")
	}
	return nil
}
