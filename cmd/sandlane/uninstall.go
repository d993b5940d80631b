package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/cmd/sandlane/uninstall"
	"github.com/sandlane/sandlane/gateway"
)

func newUninstall() *cobra.Command {
	cmd := &cobra.Command{
		Use: "uninstall",
		Example: `  sandlane uninstall empty --end-sandboxes
  sandlane uninstall leases`,
		Short: "Take an installation apart in order; the Helm chart's hooks run it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var kubeconfig string
	var timeout time.Duration
	var o uninstall.Options
	cmd.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default the pod's service account)")
	cmdflags.Files(cmd, "kubeconfig")
	cmd.PersistentFlags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait until nothing is left")
	step := func(use, example, short string, run func(context.Context, uninstall.Options) error) *cobra.Command {
		return &cobra.Command{Use: use, Example: example, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Client, err = inCluster(kubeconfig); err != nil {
				return err
			}
			o.Progress = func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return run(ctx, o)
		}}
	}
	empty := step("empty", "  sandlane uninstall empty --end-sandboxes", "Empty all pools, while controller and gateways run; refuse while sandboxes live or snapshots are kept", uninstall.Empty)
	empty.Flags().BoolVar(&o.EndSandboxes, "end-sandboxes", false, "end sandboxes that live, instead of refusing")
	empty.Flags().BoolVar(&o.DeleteCheckpoints, "delete-checkpoints", false, "delete snapshots with their data, instead of refusing")
	leases := step("leases", "  sandlane uninstall leases --system-namespace sandlane-system", "Delete the leases of gateways, once no gateway is left", uninstall.Leases)
	leases.Flags().StringVar(&o.Namespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases")
	leases.Flags().BoolVar(&o.Keys, "keys", false, "delete the gateways' own keys as well: tokens that were made with them stop working")
	cmd.AddCommand(empty, leases)
	return cmd
}
