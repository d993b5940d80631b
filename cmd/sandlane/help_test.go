package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// everyCommand calls f with each command that a person may see.
func everyCommand(t *testing.T, f func(cmd *cobra.Command)) {
	t.Helper()
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				seen++
				f(sub)
				walk(sub)
			}
		}
	}
	walk(newRoot())
	if seen < 15 {
		t.Fatalf("found %d commands only", seen)
	}
}

// Each command's help shows how it is called, by flags that it has.
func TestHelpShowsExamples(t *testing.T) {
	everyCommand(t, func(cmd *cobra.Command) {
		if !strings.HasPrefix(cmd.Example, "  "+cmd.CommandPath()) {
			t.Errorf("%s: its example is %q", cmd.CommandPath(), cmd.Example)
		}
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", "")) {
			args := strings.Fields(strings.FieldsFunc(line, func(r rune) bool { return r == '|' || r == '&' })[0])
			called, rest, err := newRoot().Find(args[1:])
			if err != nil {
				t.Errorf("%q: %v", line, err)
			} else if err := called.ParseFlags(rest); err != nil && !called.DisableFlagParsing {
				t.Errorf("%q: %v", line, err)
			}
		}
	})
}

// The value of a flag is called what it is, in the help of each command that has it.
func TestHelpNamesTheKubeconfigsValue(t *testing.T) {
	everyCommand(t, func(cmd *cobra.Command) {
		if usage := cmd.UsageString(); strings.Contains(usage, "--kubeconfig up") {
			t.Errorf("%s: --kubeconfig takes an \"up\":\n%s", cmd.CommandPath(), usage)
		}
	})
	if _, out, _ := run(t, "end", "--help"); !strings.Contains(out, "--kubeconfig FILE") {
		t.Errorf("sandlane end --help:\n%s", out)
	}
}

// The shells complete commands and flags.
func TestShellCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := run(t, "completion", shell); code != 0 || !strings.Contains(out, "sandlane") {
			t.Errorf("completion %s: %d, %s", shell, code, errs)
		}
	}
	everyCommand(t, func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		last := len(path) - 1
		if _, out, _ := run(t, append(append([]string{"__complete"}, path[:last]...), path[last][:1])...); !strings.Contains(out, path[last]) {
			t.Errorf("%q is not completed: %s", cmd.CommandPath(), out)
		}
	})
	if _, out, _ := run(t, "__complete", "up", "--pool"); !strings.Contains(out, "--pool-size") {
		t.Errorf("a flag is not completed: %s", out)
	}
}
