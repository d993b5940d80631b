package main

import (
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// kubeconfigFlag adds --kubeconfig. Without it a process uses its pod's service
// account.
func kubeconfigFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "kubeconfig", "", "kubeconfig of the cluster (default the pod's service account)")
	takeFiles(cmd, "kubeconfig")
}

// metricsAddress translates a --metrics-address for the part that serves it, in which off
// means nowhere. Users may write that as "" or as "0".
func metricsAddress(address, off string) string {
	if address == "" || address == "0" {
		return off
	}
	return address
}

// required marks flags without which the command is refused.
func required(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		if err := cmd.MarkFlagRequired(n); err != nil {
			panic(err) // no such flag: a slip in this package
		}
	}
}

// logWith sends what every library says to one log.
func logWith(l *slog.Logger) {
	slog.SetDefault(l)
	sink := logr.FromSlogHandler(l.Handler())
	ctrllog.SetLogger(sink)
	klog.SetLogger(sink)
}
