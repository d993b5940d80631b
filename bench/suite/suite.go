// Package suite has what the sections of the benchmarks share: how long to measure (Plan),
// the result, the processes under test, and a cluster of sandboxes without nodes. bench makes
// an Env and runs one Section after the other with it; the sections decide what they measure.
//
// Every process that an Env starts dies with this process, also if this one is killed. Start
// processes on the goroutine of main, which is locked to a thread that lives as long as this
// process.
package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/test/result"
)

// Section is one part of the benchmarks.
type Section struct {
	Name  string // first part of its rows' names
	About string
	Run   func(ctx context.Context, e *Env) error
}

// Plan says how much to measure.
type Plan struct {
	Name string
	// Ratios with a verdict come from Pairs pairs of rounds of PairTime.
	Pairs    int
	PairTime time.Duration
	// Judged is how many rounds of RoundTime the other rows with a budget get, and Rounds
	// how many the rows without a budget get.
	Judged    int
	Rounds    int
	RoundTime time.Duration
	// Fleets are the numbers of sandboxes of the cases with many.
	Fleets []int
	// Claims is how many claims are timed one by one; Bursts are how many come at once.
	Claims int
	Bursts []int
	// Entries is the size of the caches that are compared. Objects is how many objects
	// the idle section holds in memory.
	Entries int
	Objects int
	// Cases are the cases to run, of a section that has cases; nil means all.
	Cases []string
}

// Wants reports whether a case is to be run.
func (p Plan) Wants(name string) bool { return len(p.Cases) == 0 || slices.Contains(p.Cases, name) }

// Check returns an error if a number of the plan would leave a row without a sample.
func (p Plan) Check() error {
	if p.Pairs < 1 || p.Judged < 1 || p.Rounds < 1 || p.PairTime <= 0 || p.RoundTime <= 0 || p.Objects < 1 || len(p.Fleets) == 0 {
		return errors.New("pairs, rounds, their times, objects and fleets must be positive")
	}
	return nil
}

// String says how much is measured.
func (p Plan) String() string {
	s := fmt.Sprintf("%d pairs of %v; other rows %d × %v, with a budget %d ×", p.Pairs, p.PairTime, p.Rounds, p.RoundTime, p.Judged)
	if len(p.Cases) > 0 {
		s += "; only the cases " + strings.Join(p.Cases, ", ")
	}
	return s
}

// All is the plan of `make bench`.
func All() Plan {
	return Plan{
		Name: "all", Pairs: 10, PairTime: 10 * time.Second, Judged: 6, Rounds: 3, RoundTime: 8 * time.Second,
		Fleets: []int{1_000, 10_000}, Claims: 100, Bursts: []int{32, 300}, Entries: 100_000, Objects: 100_000,
	}
}

// Quick is the plan of `make bench-quick`.
func Quick() Plan {
	return Plan{
		Name: "quick", Pairs: 6, PairTime: time.Second, Judged: 1, Rounds: 1, RoundTime: time.Second,
		Fleets: []int{500}, Claims: 20, Bursts: []int{32}, Entries: 100_000, Objects: 10_000,
	}
}

// Env is where a section runs.
type Env struct {
	Plan
	*result.Result
	// Sandlane, Floor and Envoy are programs; Self is this one.
	Sandlane, Floor, Envoy, Self string
	// Module is Envoy's module of the fast path; empty if none was built.
	Module string
	// Wrk is empty if there is none.
	Wrk string
	// Dir is for sockets and files; short enough for a socket's path.
	Dir string
	// Out gets lines about the progress.
	Out io.Writer

	began  time.Time
	stolen func() float64      // since then
	tuned  map[string][]string // environment of the do-nothing server, by section
}

// NewEnv returns an Env with an empty result and a folder of its own. It fails if the machine
// allows fewer open files than the plan needs.
func NewEnv(plan Plan, out io.Writer) (*Env, error) {
	if err := raiseFiles(plan); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "slb")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	now := time.Now()
	return &Env{
		Plan: plan, Dir: dir, Out: out, began: now, stolen: Stolen(),
		Result: &result.Result{Started: now.UTC().Truncate(time.Second), Plan: plan.Name, Extent: plan.String(), Machine: result.ThisMachine()},
	}, nil
}

// Close removes the folder.
func (e *Env) Close() {
	e.Took = time.Since(e.began).Round(time.Second).String()
	e.Stolen = e.stolen()
	_ = os.RemoveAll(e.Dir)
}

// Progress prints a line with the time since the start.
func (e *Env) Progress(format string, args ...any) {
	fmt.Fprintf(e.Out, "%5s  %s\n", time.Since(e.began).Round(time.Second), fmt.Sprintf(format, args...))
}

// Note adds a note for the reader of the result.
func (e *Env) Note(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	e.Notes = append(e.Notes, note)
	e.Progress("note: %s", note)
}

// Folder makes a folder below Dir.
func (e *Env) Folder(name string) (string, error) {
	dir := filepath.Join(e.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return dir, nil
}

// InTurns runs all sides n times, each time beginning with the next side, so that other work
// of the machine affects all of them alike.
func InTurns(ctx context.Context, n int, sides ...func(ctx context.Context, round int) error) error {
	for round := range n {
		for i := range sides {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := sides[(round+i)%len(sides)](ctx, round); err != nil {
				return err
			}
		}
	}
	return nil
}
