package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local/binaries"
)

func newPrepare() *cobra.Command {
	return &cobra.Command{
		Use:     "prepare",
		Example: `  sandlane prepare`,
		Short:   "Find, download or build Envoy and the Kubernetes binaries, and print where they are",
		Long: `Find, download or build Envoy and the Kubernetes binaries, and print where they
are: two lines, KUBEBUILDER_ASSETS=... and ENVOY_BIN=..., for scripts. Progress
goes to standard error.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			bin, err := envoy.Find(cmd.Context(), envoy.FindOptions{Progress: progress})
			if err != nil {
				return err
			}
			assets, err := binaries.Assets(cmd.Context(), binaries.Options{Progress: progress})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "KUBEBUILDER_ASSETS=%s\nENVOY_BIN=%s\n", assets, bin)
			return nil
		},
	}
}
