package main

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlane/sandlane/controlplane"
)

// controlTLSFlags adds the flags of the control plane's mutual TLS to one side of
// it, which talks to peer unless told otherwise.
func controlTLSFlags(cmd *cobra.Command, files *controlplane.TLSFiles, peer string) {
	flags := cmd.Flags()
	flags.StringVar(&files.Cert, "control-tls-cert", "", "certificate chain (PEM) to show on the control plane; read anew when it changes, as the other files")
	flags.StringVar(&files.Key, "control-tls-key", "", "its private key (PEM)")
	flags.StringVar(&files.CA, "control-tls-ca", "", "authorities (PEM) that the other side's certificate must come from")
	flags.StringVar(&files.Peer, "control-tls-peer", peer, "DNS name or URI that the other side's certificate must have")
	takeFiles(cmd, "control-tls-cert", "control-tls-key", "control-tls-ca")
}

// credentials are the controller's on the control plane, kept current by mgr; nil
// if it was given no files.
func (o *controllerOptions) credentials(mgr manager.Manager) (*controlplane.MutualTLS, error) {
	if !o.controlTLS.Given() {
		return nil, nil
	}
	files := o.controlTLS
	files.Log = o.log
	c, err := controlplane.LoadTLS(files)
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(c)
}
