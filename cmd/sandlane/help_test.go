package main

import (
	"cmp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// A shell offers files or folders for the values of flags that name some, and none for
// others.
func TestShellCompletionOffersFiles(t *testing.T) {
	const files, folders, nothing = ":0\n", ":16\n", ":4\n"
	offers := map[string]string{
		"kubeconfig": files, "control-tls-cert": files, "control-tls-key": files, "control-tls-ca": files, "tls-cert": files,
		"tls-key": files, "fast-path-module": files, "file": files, "api-key-file": files, "images": files, "upstream-ca": files, "egress-ca": files,
		"template-credentials": files, "registry-logins": files,
		"state": folders, "run-dir": folders, "checkpoint-dir": folders, "fast-path-folder": folders, "helpers": folders,
	}
	offered := func(args ...string) string {
		code, out, errs := run(t, append([]string{"__complete"}, args...)...)
		if code != 0 {
			t.Fatalf("completing %q: %s", args, errs)
		}
		return out
	}
	seen := map[string]bool{}
	ask := func(cmd *cobra.Command) {
		cmd.Flags().AddFlagSet(cmd.InheritedFlags())
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" || cmd.DisableFlagParsing {
				return
			}
			seen[f.Name] = true
			want := cmp.Or(offers[f.Name], nothing)
			if out := offered(append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name, "")...); out != want {
				t.Errorf("%s --%s is completed by %q, want %q", cmd.CommandPath(), f.Name, out, want)
			}
		})
	}
	everyCommand(t, ask)
	node, _, err := newRoot().Find([]string{"node"}) // hidden
	if err != nil {
		t.Fatal(err)
	}
	ask(node)
	for name := range offers {
		if !seen[name] {
			t.Errorf("no command has --%s", name)
		}
	}
	for line, want := range map[string]string{"kubectl apply -f": files, "end": nothing, "up": nothing} {
		if out := offered(append(strings.Fields(line), "")...); out != want {
			t.Errorf("%q is completed by %q, want %q", line, out, want)
		}
	}
}
