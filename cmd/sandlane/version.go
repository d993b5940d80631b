package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/hack/kube"
)

// version is set at link time; without that the build information says it.
var version = ""

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Example: `  sandlane version`,
		Short:   "Print the version, and those of Envoy and Kubernetes that `up` uses",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sandlane %s %s/%s %s\nenvoy %s\nkubernetes %s\n",
				ownVersion(), runtime.GOOS, runtime.GOARCH, runtime.Version(), envoy.Version, kube.Version())
			return err
		},
	}
}

func ownVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
