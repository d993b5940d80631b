package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/local"
	"github.com/sandlane/sandlane/local/binaries"
)

func newKubectl() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubectl [--state DIR] ...",
		Example: `  sandlane kubectl get sandboxes
  sandlane kubectl get pods --watch
  sandlane kubectl --state /tmp/other get sandboxpools`,
		Short: "Run kubectl on the cluster of `up`",
		Long:  "Run kubectl on the cluster of `up`. Everything but --state, which comes first, is kubectl's.",
		// kubectl's flags are its own: cobra must not look at them.
		DisableFlagParsing: true,
	}
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault) // arguments of kubectl may be files
	cmdflags.State(cmd)                                                                 // for the usage; kubectlArgs reads it
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
			return cmd.Help()
		}
		dir, rest, err := kubectlArgs(args)
		if err != nil {
			return err
		}
		if dir, err = cmdflags.StateDir(dir); err != nil {
			return err
		}
		up, err := local.ReadUpFile(dir)
		if err != nil {
			return err
		}
		found, err := binaries.Find(cmd.Context(), binaries.Options{
			Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
		}, binaries.Kubectl)
		if err != nil {
			return err
		}
		kubectl := exec.CommandContext(cmd.Context(), found[binaries.Kubectl], rest...)
		// Ctrl-C reaches kubectl from the terminal; this is for other signals.
		kubectl.Cancel = func() error { return kubectl.Process.Signal(os.Interrupt) }
		kubectl.Env = append(os.Environ(), "KUBECONFIG="+up.Kubeconfig,
			// What kubectl remembers of an API server must not outlive it.
			"KUBECACHEDIR="+filepath.Join(dir, "cluster", "kubectl"))
		kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
		err = kubectl.Run()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return exitCodeOf(exit.ProcessState)
		}
		return err
	}
	return cmd
}

// exitCodeOf returns the exit code that a shell would return for an ended program: 128 and
// the signal's number if a signal ended it, as SIGPIPE does behind `| head`.
func exitCodeOf(s *os.ProcessState) exitCode {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitCode(128 + int(status.Signal()))
	}
	return exitCode(s.ExitCode())
}

// kubectlArgs takes a leading --state from kubectl's arguments.
func kubectlArgs(args []string) (state string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, nil
	}
	if value, ok := strings.CutPrefix(args[0], "--state="); ok {
		return value, args[1:], nil
	}
	if args[0] != "--state" {
		return "", args, nil
	}
	if len(args) == 1 {
		return "", nil, errors.New("flag needs an argument: --state")
	}
	return args[1], args[2:], nil
}
