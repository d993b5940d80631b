package control

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/perf/benchfmt"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/result"
)

// The test programs that must lie beside this one; the Makefile builds them.
const (
	poolProgram  = "sandlane-bench-sandboxpool"
	idleProgram  = "sandlane-bench-idletimeout"
	writeProgram = "sandlane-bench-reconcilers"
)

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "control", About: "what the controller costs: a pod's event, a check for idleness, the writes of a life", Run: run}
}

func run(ctx context.Context, e *suite.Env) error {
	for _, c := range []struct{ program, benchmark, row string }{
		{poolProgram, "PodEvent/10000", "control/pod-event-10000/sandlane/"},
		{idleProgram, "Check/100000", "control/idle-check-100000/sandlane/"},
	} {
		if err := costs(ctx, e, c.program, c.benchmark, c.row); err != nil {
			return err
		}
	}
	return writes(ctx, e)
}

// costs runs one benchmark, and adds a row for its time and one for the bytes that it
// allocates.
func costs(ctx context.Context, e *suite.Env, program, benchmark, row string) error {
	name, size, _ := strings.Cut(benchmark, "/")
	out, err := output(ctx, e, program, "-test.run=^$", "-test.bench=^Benchmark"+name+"$/^"+size+"$", "-test.benchmem",
		"-test.benchtime=20x", "-test.count="+strconv.Itoa(max(e.Judged, result.MinSamples)))
	if err != nil {
		return err
	}
	rounds, err := parse(out, benchmark)
	if err != nil {
		return err
	}
	for _, r := range rounds {
		e.Add(row+"time", "ms", "less", r.seconds*1000)
		e.Add(row+"allocated", "kB", "less", r.bytes/1000)
	}
	e.Progress("%s: %.3f ms, %.1f kB", benchmark, rounds[0].seconds*1000, rounds[0].bytes/1000)
	return nil
}

// round is the cost of one operation, as a benchmark prints it.
type round struct{ seconds, bytes float64 }

// parse reads what a benchmark printed; it is an error if there is no line with its name.
func parse(out []byte, benchmark string) (rounds []round, err error) {
	lines := benchfmt.NewReader(bytes.NewReader(out), benchmark)
	for lines.Scan() {
		r, ok := lines.Result().(*benchfmt.Result)
		if !ok || strings.TrimPrefix(string(r.Name.Full()), "Benchmark") != benchmark && !strings.HasPrefix(string(r.Name.Full()), benchmark+"-") {
			continue
		}
		seconds, timed := r.Value("sec/op")
		size, counted := r.Value("B/op")
		if !timed || !counted {
			return nil, fmt.Errorf("benchmark %s: a line without its time or its bytes", benchmark)
		}
		rounds = append(rounds, round{seconds, size})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("benchmark %s: %w", benchmark, err)
	}
	if len(rounds) == 0 {
		return nil, fmt.Errorf("benchmark %s printed no result", benchmark)
	}
	return rounds, nil
}

// The test that counts writes, and the attribute with which it prints them.
const (
	lifeTest      = "TestWritesOfALife"
	lifeAttribute = "writes-a-life"
)

// writes adds a row for the writes of one sandbox's life, as the API server's metrics count
// them: the same in each round, if the controller does its work in the same order.
func writes(ctx context.Context, e *suite.Env) error {
	out, err := output(ctx, e, writeProgram, "-test.run=^"+lifeTest+"$", "-test.v", "-test.timeout=2m")
	if err != nil {
		return err
	}
	n, err := attribute(out, lifeTest, lifeAttribute)
	if err != nil {
		return err
	}
	e.Add("control/life/sandlane/writes", "writes", "less", n)
	e.Progress("a sandbox's life: %.1f writes", n)
	return nil
}

// attribute finds "=== ATTR  test name value" (testing.T.Attr).
func attribute(out []byte, test, name string) (float64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 5 && fields[1] == "ATTR" && fields[2] == test && fields[3] == name {
			value, err := strconv.ParseFloat(fields[4], 64)
			if err != nil {
				return 0, fmt.Errorf("attribute %s of %s: %w", name, test, err)
			}
			return value, nil
		}
	}
	return 0, fmt.Errorf("%s did not say %s: was it skipped? It needs $KUBEBUILDER_ASSETS", test, name)
}

// output runs a program to its end, or to that of ctx, and returns what it printed.
func output(ctx context.Context, e *suite.Env, program string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(e.Self), program), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.Dir, &out, &out
	// An interrupt lets the program end its API server.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		tail := out.Bytes()[max(0, out.Len()-2000):]
		return nil, fmt.Errorf("run %s: %w; the end of what it printed:\n%s", program, err, tail)
	}
	return out.Bytes(), nil
}
