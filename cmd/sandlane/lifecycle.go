package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/local"
)

func newDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "down",
		Example: `  sandlane down`,
		Short:   "Stop what `up` started, and take away what a killed `up` left",
		Args:    cobra.NoArgs,
	}
	state := cmdflags.State(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := state()
		if err != nil {
			return err
		}
		what, err := local.Down(cmd.Context(), dir)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), what)
		return nil
	}
	return cmd
}

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Example: `  sandlane status`,
		Short:   "Show the processes, pools and gateways of `up`; fails when something is wrong",
		Args:    cobra.NoArgs,
	}
	state := cmdflags.State(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := state()
		if err != nil {
			return err
		}
		return local.Status(cmd.Context(), dir, cmd.OutOrStdout())
	}
	return cmd
}

func newLogs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [process]",
		Example: `  sandlane logs
  sandlane logs --follow gateway-1`,
		Short: "Show the log of a process, or the end of every log",
		Args:  cobra.MaximumNArgs(1),
	}
	state := cmdflags.State(cmd)
	follow := cmd.Flags().BoolP("follow", "f", false, "go on showing what is added, until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := state()
		if err != nil {
			return err
		}
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		return local.Logs(cmd.Context(), dir, name, *follow, cmd.OutOrStdout())
	}
	return cmd
}
