package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/gateway"
)

const closedRangesUsage = "CIDR blocks that no sandbox may connect to, besides link-local addresses: the API server, nodes, services of the cluster; the same for gateways and `network-policies`"

func newNetworkPolicies() *cobra.Command {
	var namespaces, closed []string
	var system string
	cmd := &cobra.Command{
		Use:     "network-policies",
		Example: `  sandlane network-policies --namespace default,tenants | kubectl apply -f -`,
		Short:   "Print the NetworkPolicies that namespaces with pools need",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&namespaces, "namespace", []string{"default"}, "namespaces with pools")
	flags.StringVar(&system, "system-namespace", gateway.DefaultSystemNamespace, "namespace of gateways and controller")
	flags.StringSliceVar(&closed, "closed-ranges", nil, closedRangesUsage)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ranges, err := egress.ClosedRanges(closed)
		if err != nil {
			return fmt.Errorf("--closed-ranges: %w", err)
		}
		if len(namespaces) == 0 {
			return errors.New("--namespace: name at least one")
		}
		for i, ns := range namespaces {
			text, err := egress.YAML(ns, system, ranges)
			if err != nil {
				return err
			}
			if i > 0 {
				text = append([]byte("---\n"), text...)
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
