package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/bench/dataplane"
	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/report"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/test/result"
)

// Programs that lie beside this one.
const (
	floorName    = "sandlane-bench-floor"
	sandlaneName = "sandlane"
	moduleName   = "fastpath.so"
)

func newRun(name string) *cobra.Command {
	plan := map[string]suite.Plan{"all": suite.All(), "quick": suite.Quick()}[name]
	var only []string
	var out string
	cmd := &cobra.Command{
		Use: name, Short: "Run the benchmarks: " + plan.String(),
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&only, "only", nil, "sections to run; default all")
	flags.StringVar(&out, "out", "bench/runs", "folder for the result")
	flags.IntVar(&plan.Pairs, "pairs", plan.Pairs, "pairs of rounds behind a ratio with a verdict")
	flags.DurationVar(&plan.PairTime, "pair-time", plan.PairTime, "length of such a round")
	flags.IntVar(&plan.Rounds, "rounds", plan.Rounds, "rounds of the other rows")
	flags.IntVar(&plan.Judged, "judged", plan.Judged, "rounds of those that have a budget")
	flags.DurationVar(&plan.RoundTime, "round-time", plan.RoundTime, "length of those")
	flags.IntVar(&plan.Objects, "objects", plan.Objects, "sandboxes in memory, of the idle section and of the whole gateway")
	flags.IntSliceVar(&plan.Fleets, "fleets", plan.Fleets, "numbers of sandboxes")
	flags.StringSliceVar(&plan.Cases, "cases", nil, "cases of a section to run, where it has any to choose; default all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd, plan, only, out) }
	return cmd
}

func run(cmd *cobra.Command, plan suite.Plan, only []string, out string) error {
	all := sections()
	for _, name := range only {
		if !slices.ContainsFunc(all, func(s suite.Section) bool { return s.Name == name }) {
			return fmt.Errorf("there is no section %q; `sandlane-bench list` shows them", name)
		}
	}
	if err := plan.Check(); err != nil {
		return err
	}
	e, err := suite.NewEnv(plan, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Machine.Crowded() {
		e.Note("the machine was not quiet when this began (load average %s, %d cores)", e.Machine.LoadAverage, e.Machine.Cores)
	}
	if err := find(cmd.Context(), e); err != nil {
		return err
	}
	var failed error
	for _, s := range all {
		if len(only) > 0 && !slices.Contains(only, s.Name) {
			continue
		}
		e.Progress("== %s: %s", s.Name, s.About)
		if err := s.Run(cmd.Context(), e); err != nil {
			err = fmt.Errorf("section %s: %w", s.Name, err)
			failed = errors.Join(failed, err)
			if cmd.Context().Err() != nil {
				return failed
			}
			// Run the other sections all the same, since a run takes half an hour.
			e.Progress("%v", err)
			e.Note("the section %s ended early: its rows are not all there", s.Name)
		}
		debug.FreeOSMemory() // the memory of one section must not slow the next
	}
	report.Judge(e.Result)
	e.SetHeadline(dataplane.HeadlineVsDoNothing, dataplane.HeadlineVsPlain)
	e.Close()
	return errors.Join(failed, write(cmd, e.Result, out))
}

// find sets the paths of the programs.
func find(ctx context.Context, e *suite.Env) (err error) {
	if e.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	e.Floor = filepath.Join(filepath.Dir(e.Self), floorName)
	if e.Sandlane = os.Getenv("SANDLANE_BIN"); e.Sandlane == "" {
		e.Sandlane = filepath.Join(filepath.Dir(e.Self), sandlaneName)
	}
	for _, path := range []string{e.Floor, e.Sandlane} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("a program to measure is missing; `make bench` builds all: %w", err)
		}
	}
	if module := filepath.Join(filepath.Dir(e.Self), moduleName); exists(module) {
		e.Module = module
	}
	progress := func(line string) { e.Progress("%s", line) }
	if e.Envoy, err = envoy.Find(ctx, envoy.FindOptions{Progress: progress}); err != nil {
		return err
	}
	e.Version = result.Output(e.Sandlane, "version")
	// Before this word Envoy prints its path, which must not be in a result.
	_, version, _ := strings.Cut(result.Output(e.Envoy, "--version"), "version: ")
	e.Machine.Envoy = "envoy " + version
	e.Machine.Load = "the generator of package load"
	if e.Wrk = load.FindWrk(); e.Wrk != "" {
		e.Machine.Load = "wrk"
	} else {
		e.Note("no wrk on PATH nor $WRK_BIN (Debian has a package wrk): the closed loops are package load's, which takes more of the machine")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unused adds a number to the name of a file that exists already: a result is never
// overwritten, since results that are compared are often of the same day.
func unused(base string) string {
	name := base
	for n := 2; ; n++ {
		if _, err := os.Stat(name + ".json"); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
}

// write writes the result, its table and its plots to files, and prints the table.
func write(cmd *cobra.Command, r *result.Result, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder for results: %w", err)
	}
	base := filepath.Join(dir, r.Started.Format(time.DateOnly)+"-"+r.Machine.Label())
	if r.Plan != "all" {
		base += "-" + r.Plan
	}
	base = unused(base)
	if err := r.Save(base + ".json"); err != nil {
		return err
	}
	plots, err := report.Plots(r, dir, filepath.Base(base))
	if err != nil {
		return err
	}
	text := report.Markdown(r, plots)
	if err := os.WriteFile(base+".md", []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	fmt.Fprint(cmd.OutOrStdout(), text)
	fmt.Fprintf(cmd.ErrOrStderr(), "written: %s.json, .md and %d plots\n", base, len(plots))
	return nil
}
