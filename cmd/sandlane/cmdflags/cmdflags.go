// Package cmdflags has the flags that several commands of sandlane share, what they mean,
// and what a shell offers for their values. The commands of package main call it.
package cmdflags

import (
	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/controlplane"
)

// Files has a shell offer files for the values of flags, which the root command keeps it from.
func Files(cmd *cobra.Command, names ...string) {
	// MarkFlagFilename without extensions does nothing beside a default directive.
	offer := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	for _, n := range names {
		if err := cmd.RegisterFlagCompletionFunc(n, offer); err != nil {
			panic(err) // no such flag: a slip in this package
		}
	}
}

// Folders has a shell offer folders for the values of flags.
func Folders(cmd *cobra.Command, names ...string) {
	offer := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	for _, n := range names {
		if err := cmd.RegisterFlagCompletionFunc(n, offer); err != nil {
			panic(err) // no such flag: a slip in this package
		}
	}
}

// Kubeconfig adds --kubeconfig. Without it a process uses its pod's service
// account.
func Kubeconfig(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "kubeconfig", "", "kubeconfig of the cluster (default the pod's service account)")
	Files(cmd, "kubeconfig")
}

// Required marks flags without which the command is refused.
func Required(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		if err := cmd.MarkFlagRequired(n); err != nil {
			panic(err) // no such flag: a slip in this package
		}
	}
}

// ControlTLS adds the flags of the control plane's mutual TLS to one side of
// it, which talks to peer unless told otherwise.
func ControlTLS(cmd *cobra.Command, files *controlplane.TLSFiles, peer string) {
	flags := cmd.Flags()
	flags.StringVar(&files.Cert, "control-tls-cert", "", "certificate chain (PEM) to show on the control plane; read anew when it changes, as the other files")
	flags.StringVar(&files.Key, "control-tls-key", "", "its private key (PEM)")
	flags.StringVar(&files.CA, "control-tls-ca", "", "authorities (PEM) that the other side's certificate must come from")
	flags.StringVar(&files.Peer, "control-tls-peer", peer, "DNS name or URI that the other side's certificate must have")
	Files(cmd, "control-tls-cert", "control-tls-key", "control-tls-ca")
}
