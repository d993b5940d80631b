package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/cmd/sandlane/daemon"
	"github.com/sandlane/sandlane/console"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/local"
)

func newConsole() *cobra.Command {
	cmd := &cobra.Command{
		Use: "console",
		Example: `  sandlane console
  sandlane console --kubeconfig ~/.kube/config --listen 127.0.0.1:8088`,
		Short: "Show pools, sandboxes and gateways on a page on this machine",
		Long: `Show pools, sandboxes, gateways, envs, snapshots and Events on a page on this
machine, live; end, pause and resume sandboxes, and open their ports. It acts with the
kubeconfig's rights, and nothing of it is in the cluster. Open the printed address, which
has the token of this run. ` + "`sandlane up`" + ` serves it too, and prints its address.`,
		Args: cobra.NoArgs,
	}
	on := cmdflags.ForCluster(cmd)
	domain := cmdflags.Domain(cmd)
	listen := cmd.Flags().String("listen", "127.0.0.1:0", "address on loopback; port 0 is any free one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		below, noDomain := on.Sandboxes(*domain)
		if noDomain != nil && *domain != "" {
			return noDomain
		}
		cfg, err := on.Config()
		if err != nil {
			return err
		}
		find, err := on.Processes(cfg)
		if err != nil {
			return err
		}
		daemon.LogWith(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		l, err := console.Listen(*listen)
		if err != nil {
			return err
		}
		defer l.Close()
		o := console.Options{Config: cfg, SystemNamespace: on.SystemNamespace, Processes: find}
		if noDomain == nil { // else it opens no ports, and says so
			o.Link = linksBelow(below, on.SystemNamespace)
		}
		server, err := console.New(o)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", server.URL(l.Addr())); err != nil {
			return err
		}
		return server.Serve(cmd.Context(), l)
	}
	return cmd
}

// consoleOf serves the console of the `up` with a state folder.
func consoleOf(stateDir string) func(context.Context, *rest.Config) (string, error) {
	return func(ctx context.Context, cfg *rest.Config) (string, error) {
		l, err := console.Listen("127.0.0.1:0")
		if err != nil {
			return "", err
		}
		link := func(ctx context.Context, api client.Client, s *v1alpha1.Sandbox, port uint16) (string, error) {
			below, err := cmdflags.SandboxesOfUp(stateDir) // which `up` knows once all runs
			if err != nil {
				return "", err
			}
			return linksBelow(below, gateway.DefaultSystemNamespace)(ctx, api, s, port)
		}
		server, err := console.New(console.Options{Config: cfg, SystemNamespace: gateway.DefaultSystemNamespace, Processes: local.Processes(stateDir), Link: link})
		if err != nil {
			return "", err
		}
		go func() {
			if err := server.Serve(ctx, l); err != nil {
				slog.Error("the console ended", "err", err)
			}
		}()
		return server.URL(l.Addr()), nil
	}
}
