package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/template"
)

// commands makes every subcommand. A new one is a file of its own and a line
// here.
var commands = []func() *cobra.Command{
	newUp,
	newDown,
	newStatus,
	newLogs,
	newKubectl,
	newConsole,
	newExplain,
	newSupportBundle,
	newEnd,
	newAPIKey,
	newInitKeys,
	newBundle,
	newToken,
	newOpen,
	newGateway,
	newController,
	newEgress,
	newPrepare,
	newEnvoyConfig,
	newControlCerts,
	newCheck,
	newConformance,
	newUninstall,
	template.New,
	newNetworkPolicies,
	newNode,
	newVersion,
}

// Run runs the command line args (without the program's name) and returns the
// exit code. It ends early, but in order, on SIGINT, SIGTERM and SIGHUP; a
// second one ends the process at once.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	// A program that was run in our place has said itself what is wrong.
	if code := exitCode(0); errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(stderr, "sandlane: %s\n", strings.TrimSpace(err.Error()))
	return 1
}

// exitCode is the error of a program that was run in our place and failed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:                "sandlane",
		Short:              "Route requests to sandboxes on Kubernetes, and claim a warm pod for the first one",
		SilenceErrors:      true, // Run prints errors, in one line
		SilenceUsage:       true,
		DisableSuggestions: true,
		Args:               cobra.NoArgs,
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp) // no argument is a file; flags that name one say so
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help-command"})
	for _, make := range commands {
		root.AddCommand(make())
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())
	})
	sayUsage(root)
	return root
}

// sayUsage has a command, and those below it, say with wrong arguments how it is called.
func sayUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			switch {
			case err == nil:
				return nil
			case cmd.HasSubCommands():
				return fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())
			}
			return fmt.Errorf("%w: it is called as `%s`", err, cmd.UseLine())
		}
	}
	for _, sub := range cmd.Commands() {
		sayUsage(sub)
	}
}
