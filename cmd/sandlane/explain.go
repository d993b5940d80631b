package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/console/explain"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [ID]",
		Example: `  sandlane explain hello
  sandlane explain --kubeconfig ~/.kube/config hello
  sandlane explain`,
		Short: "Say what is wrong with a sandbox, or with all of an installation, and what to do",
		Long: `Say what a sandbox is, where its pod is, what gateways report, which Events and lines
of logs name it, why it ended, and what to do. Without an ID: what is wrong with pools,
envs, gateways, snapshots and sandboxes. It reads with the kubeconfig's rights, and says
what it could not read.`,
		Args: cobra.MaximumNArgs(1),
	}
	on := cmdflags.ForCluster(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if err := checkID(args[0]); err != nil {
				return err
			}
		}
		from, err := on.Reader()
		if err != nil {
			return err
		}
		text := ""
		if len(args) == 0 {
			text = explain.Text(explain.Check(from.Installation(cmd.Context())))
		} else {
			facts, err := from.Sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			text = explain.Sandbox(facts).Text()
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}
