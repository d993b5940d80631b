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
	only := flag.String("only", "", "run only the mutants whose names match; writes no page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run does what the package comment says.
func run(ctx context.Context, only string) error {
	out, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(out))
	all, err := load(filepath.Join(root, "test", "mutants", "patches"))
	if err != nil {
		return err
	}
	pick, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !pick.MatchString(m.name) })
	dir, err := copyCheckout(ctx, root)
	defer os.RemoveAll(dir)
	if err != nil {
		return err
	}
	began := time.Now()
	r := &runner{dir: dir}
	if err := r.unbroken(ctx, all); err != nil {
		return err
	}
	var results []result
	for i, m := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		res := r.try(ctx, m)
		fmt.Printf("%2d of %d  %-40s %s\n", i+1, len(all), m.name, res.word())
		if res.err != nil {
			fmt.Println("         ", res.err)
		} else if res.caught {
			fmt.Println("         ", res.said)
		}
		results = append(results, res)
	}
	fmt.Printf("mutants: %s, in %v\n", summary(results), time.Since(began).Round(time.Second))
	if only == "" {
		if err := os.WriteFile(filepath.Join(root, "docs", "mutants.md"), []byte(page(results)), 0o644); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(results, func(r result) bool { return r.err != nil || !r.caught }) {
		return errors.New("not all mutants were caught")
	}
	return nil
}
