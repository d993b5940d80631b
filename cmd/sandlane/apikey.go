package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/credentials"
)

func newAPIKey() *cobra.Command {
	cmd := &cobra.Command{
		Use: "apikey",
		Example: `  sandlane apikey create --team blue
  sandlane apikey list`,
		Short: "Create, list and revoke API keys",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	on := cmdflags.ForCluster(cmd)
	cmd.AddCommand(newAPIKeyCreate(on), newAPIKeyValues(), newAPIKeyList(on), newAPIKeyRevoke(on))
	return cmd
}

// keys is the cluster's store of API keys.
func keysOf(c *cmdflags.Cluster) (*credentials.Store, error) {
	api, err := c.Connect()
	if err != nil {
		return nil, err
	}
	return credentials.NewStore(api, c.KeyNamespace), nil
}

func newAPIKeyCreate(on *cmdflags.Cluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create",
		Example: `  sandlane apikey create --team blue --namespace default`,
		Short:   "Create a key; it is shown this once",
		Args:    cobra.NoArgs,
	}
	team := cmd.Flags().String("team", demoTeam, "team that the key belongs to")
	namespace := cmd.Flags().String("namespace", "default", "namespace whose sandboxes the key sees")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := on.Connect()
		if err != nil {
			return err
		}
		key, info, err := credentials.NewStore(c, on.KeyNamespace).Create(cmd.Context(), *team, *namespace)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\nkey %s of team %s for namespace %s; it is not shown again\n", key, info.ID, info.Team, info.Namespace)
		return err
	}
	return cmd
}

func newAPIKeyValues() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "values",
		Example: `  sandlane apikey values >team-keys.yaml`,
		Short:   "Make up a key, and print values of the chart sandlane-tenant for it",
		Long: `Make up a key without a cluster. Its salted hash is printed on standard output, as
values of the chart sandlane-tenant; the key itself on standard error, this once.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		key, stored := credentials.New()
		text, err := yaml.Marshal(map[string]any{"keys": []credentials.Stored{stored}})
		if err != nil {
			return fmt.Errorf("print the values: %w", err)
		}
		if _, err := cmd.OutOrStdout().Write(text); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s\nkey %s; it is not shown again\n", key, stored.ID)
		return err
	}
	return cmd
}

func newAPIKeyList(on *cmdflags.Cluster) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Example: "  sandlane apikey list", Short: "List the keys", Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := keysOf(on)
		if err != nil {
			return err
		}
		keys, err := s.List(cmd.Context())
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "ID\tTEAM\tNAMESPACE\tAGE")
		for _, k := range keys {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.ID, k.Team, k.Namespace, duration.HumanDuration(time.Since(k.Created)))
		}
		return w.Flush()
	}
	return cmd
}

func newAPIKeyRevoke(on *cmdflags.Cluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Example: `  sandlane apikey revoke 0a1b2c3d`,
		Short:   "Revoke a key by its ID (see list); it stops working within seconds",
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := keysOf(on)
		if err != nil {
			return err
		}
		release, err := s.Revoke(cmd.Context(), args[0])
		if errors.Is(err, credentials.ErrKeyNotFound) {
			return fmt.Errorf("there is no key %q; `%s apikey list` shows them", args[0], program())
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "key %s revoked\n", args[0]); err != nil || release == "" {
			return err
		}
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "key %s is of the Helm release %s: an upgrade with the key in its values, or a rollback to an older revision, makes it again\n", args[0], release)
		return err
	}
	return cmd
}
