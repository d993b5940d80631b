package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/console/bundle"
)

func newSupportBundle() *cobra.Command {
	cmd := &cobra.Command{
		Use: "support-bundle",
		Example: `  sandlane support-bundle
  sandlane support-bundle --kubeconfig ~/.kube/config --file /tmp/support.tar.gz`,
		Short: "Put objects, Events, logs and metrics into one archive, without secrets",
		Long: `Put what ` + "`sandlane explain`" + ` says, objects with their conditions, Events, logs and metrics
into one archive. No Secret is read; values of environment variables, commands, and
metadata and annotations of users are left out, and what looks like a key, token or
password in logs is replaced. Look through it before you send it on.`,
		Args: cobra.NoArgs,
	}
	on := cmdflags.ForCluster(cmd)
	file := cmd.Flags().String("file", "sandlane-support.tar.gz", "write the archive to this file, which must not be there yet")
	cmdflags.Files(cmd, "file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, err := on.Reader()
		if err != nil {
			return err
		}
		out, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		if err := errors.Join(bundle.Write(cmd.Context(), from, ownVersion(), out), out.Close()); err != nil {
			return errors.Join(err, os.Remove(*file))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is written: look through it before you send it on\n", *file)
		return err
	}
	return cmd
}
