package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/credentials/logins"
	"github.com/sandlane/sandlane/local/node"
)

// newNode is what `up` starts as the cluster's node.
func newNode() *cobra.Command {
	var o node.Options
	var subnet, isolation, registryLogins string
	cmd := &cobra.Command{
		Use:    "node",
		Short:  "Run the node of a local cluster (started by `up`)",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	flags.StringVar(&o.Name, "name", "sandlane", "name of the node")
	flags.StringVar(&o.StateDir, "state", "", "state folder")
	flags.StringVar(&subnet, "subnet", "", "network that pods get their addresses from")
	flags.StringVar(&isolation, "isolation", string(node.IsolationFull), "keep pods apart: full or none")
	flags.StringVar(&o.Images, "images", "", "image table (JSON)")
	flags.BoolVar(&o.ReuseLIFO, "reuse-addresses", false, "give a new pod the address that was freed last (for tests)")
	flags.BoolVar(&o.Egress, "egress", false, "let pods whose only name server is the subnet's first address connect to the egress process there")
	flags.StringVar(&o.HelperDir, "helpers", "", "folder of the node's programs")
	flags.StringVar(&registryLogins, "registry-logins", "", "file with logins of registries, in the form of Docker's config.json, besides those that docker login left")
	cmdflags.Files(cmd, "kubeconfig", "images", "registry-logins")
	cmdflags.Folders(cmd, "state", "helpers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Subnet, err = netip.ParsePrefix(subnet); err != nil {
			return fmt.Errorf("--subnet %q: %w", subnet, err)
		}
		o.Isolation = node.Isolation(isolation)
		o.ImageStore.Logins = logins.Keychain(registryLogins)
		return node.Run(cmd.Context(), o)
	}
	return cmd
}
