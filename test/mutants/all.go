package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// tryAll tries mutants, package by package, `jobs` packages at once. The results
// are in the order of the mutants' names.
func tryAll(ctx context.Context, root string, all []mutant, jobs int) ([]result, error) {
	packages := byPackage(all)
	runners := make([]*runner, min(jobs, len(packages)))
	for i := range runners {
		dir, err := copyCheckout(ctx, root)
		defer os.RemoveAll(dir)
		if err != nil {
			return nil, err
		}
		runners[i] = &runner{dir: dir}
	}
	var (
		work    = make(chan []mutant)
		group   sync.WaitGroup
		mu      sync.Mutex
		results []result // under mu
	)
	for _, r := range runners {
		group.Go(func() {
			for mutants := range work {
				r.tryPackage(ctx, mutants, func(res result) {
					mu.Lock()
					defer mu.Unlock()
					results = append(results, res)
					fmt.Print(line(len(results), len(all), res))
				})
			}
		})
	}
	for _, mutants := range packages {
		work <- mutants
	}
	close(work)
	group.Wait()
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	return results, ctx.Err()
}

// byPackage has the mutants of each package together, the most first: what takes
// longest must not begin last.
func byPackage(all []mutant) [][]mutant {
	groups := map[string][]mutant{}
	for _, m := range all {
		groups[m.pkg] = append(groups[m.pkg], m)
	}
	packages := make([][]mutant, 0, len(groups))
	for _, g := range groups {
		packages = append(packages, g)
	}
	slices.SortFunc(packages, func(a, b []mutant) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a[0].pkg, b[0].pkg)
	})
	return packages
}

// tryPackage runs the tests of one package's mutants unbroken, then each mutant.
// Those whose test does not pass unbroken are errors.
func (r *runner) tryPackage(ctx context.Context, mutants []mutant, done func(result)) {
	broken, err := r.unbroken(ctx, mutants)
	for _, m := range mutants {
		switch cause := broken[m.pattern]; {
		case ctx.Err() != nil:
			return
		case err != nil:
			done(result{mutant: m, err: err})
		case cause != nil:
			done(result{mutant: m, err: cause})
		default:
			done(r.try(ctx, m))
		}
	}
}
