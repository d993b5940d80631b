package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/bench/claims"
	"github.com/sandlane/sandlane/bench/dataplane"
	"github.com/sandlane/sandlane/bench/idle"
	"github.com/sandlane/sandlane/bench/routes"
	"github.com/sandlane/sandlane/bench/socket"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/bench/upstream"
)

// sections are all of them, in the order in which they run.
func sections() []suite.Section {
	return []suite.Section{dataplane.Section(), socket.Section(), routes.Section(), claims.Section(), idle.Section()}
}

// helpers are what this program starts itself as, to be processes of their own.
func helpers() []*cobra.Command {
	var port int
	server := &cobra.Command{
		Use: "upstream", Short: "Serve as every sandbox", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := upstream.Listen(cmd.Context(), port)
			if err != nil {
				return err
			}
			defer context.AfterFunc(cmd.Context(), func() { _ = l.Close() })()
			return upstream.Serve(l)
		},
	}
	server.Flags().IntVar(&port, "port", 0, "port to listen on")
	var o socket.Options
	extproc := &cobra.Command{
		Use: "extproc", Short: "Serve ExtProc with routes that were made up", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return socket.Serve(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	extproc.Flags().StringVar(&o.Socket, "socket", "", "unix socket to listen on")
	extproc.Flags().IntVar(&o.Routes, "routes", 1, "how many sandboxes there are")
	return []*cobra.Command{server, extproc}
}
