package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/credentials"
)

func newInitKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use: "initkeys",
		Example: `  sandlane initkeys show
  sandlane initkeys rotate`,
		Short: "Show and rotate the keys that gateways sign /init of sandboxd with",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	on := cmdflags.ForCluster(cmd)
	cmd.AddCommand(newInitKeysShow(on), newInitKeysRotate(on))
	return cmd
}

func newInitKeysShow(on *cmdflags.Cluster) *cobra.Command {
	cmd := &cobra.Command{Use: "show", Example: "  sandlane initkeys show", Short: "Show the ID of the key that new pods get", Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := on.Connect()
		if err != nil {
			return err
		}
		key, err := credentials.ReadInitKey(cmd.Context(), c, on.SystemNamespace)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), key.ID)
		return err
	}
	return cmd
}

func newInitKeysRotate(on *cmdflags.Cluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rotate",
		Example: `  sandlane initkeys rotate`,
		Short:   "Give new pods the next key; pods that are there keep theirs",
		Long: `Give new pods the next key, and make another for the rotation after this one. Pods
that are there keep the key that they carry (label ` + v1alpha1.LabelInitKey + `), and
gateways can use it as long as a pod carries it.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := on.Connect()
		if err != nil {
			return err
		}
		keys, begun, err := credentials.RotateInitKeys(cmd.Context(), c, on.SystemNamespace)
		if err != nil {
			return err
		}
		if !begun {
			if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "An earlier rotation had failed halfway: it is finished now. Run this again for another one."); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "new pods get the key %s\n", keys.Current().ID)
		return err
	}
	return cmd
}
