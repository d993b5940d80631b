package main

import (
	"context"
	"net"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/bench/claims"
	"github.com/sandlane/sandlane/bench/control"
	"github.com/sandlane/sandlane/bench/dataplane"
	"github.com/sandlane/sandlane/bench/egress"
	"github.com/sandlane/sandlane/bench/idle"
	"github.com/sandlane/sandlane/bench/routes"
	"github.com/sandlane/sandlane/bench/socket"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/bench/upstream"
)

// sections are all sections, in the order in which they run.
func sections() []suite.Section {
	return []suite.Section{dataplane.Section(), dataplane.FastSection(), socket.Section(), routes.Section(), claims.Section(), egress.Section(), idle.Section(), control.Section()}
}

// helpers are hidden commands: this program starts itself with one for each process that
// it needs beside it.
func helpers() []*cobra.Command {
	server := listening("upstream", "Serve as every sandbox", upstream.Serve)
	agent := listening("agent", "Answer as every pod's sandboxd", upstream.ServeAgent)
	var o socket.Options
	extproc := &cobra.Command{
		Use: "extproc", Short: "Serve ExtProc with routes that were made up", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return socket.Serve(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	extproc.Flags().StringVar(&o.Socket, "socket", "", "unix socket to listen on")
	extproc.Flags().IntVar(&o.Routes, "routes", 1, "how many sandboxes there are")
	return []*cobra.Command{server, agent, extproc, egressHelpers()}
}

// egressHelpers are the processes beside the client of section egress.
func egressHelpers() *cobra.Command {
	var o egress.Options
	all := &cobra.Command{Use: "egress", Short: "Serve in section egress", Hidden: true, Args: cobra.NoArgs}
	flags := all.PersistentFlags()
	flags.StringVar(&o.Dir, "dir", "", "folder of the authority")
	flags.IntVar(&o.HTTPS, "https", 0, "port of HTTPS, or of CONNECT")
	flags.IntVar(&o.Names, "names", 0, "port of names")
	flags.IntVar(&o.Internet, "internet", 0, "port of the host")
	flags.IntVar(&o.Sandboxes, "sandboxes", 1, "how many sandboxes there are")
	for name, serve := range map[string]func(context.Context, egress.Options) error{
		"internet": egress.Internet, "connect": egress.Connect, "proxy": egress.Egress,
	} {
		all.AddCommand(&cobra.Command{Use: name, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), o)
		}})
	}
	return all
}

// listening is a command that serves on every loopback address until it is ended.
func listening(name, short string, serve func(net.Listener) error) *cobra.Command {
	var port int
	cmd := &cobra.Command{Use: name, Short: short, Hidden: true, Args: cobra.NoArgs}
	cmd.Flags().IntVar(&port, "port", 0, "port to listen on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := upstream.Listen(cmd.Context(), port)
		if err != nil {
			return err
		}
		defer context.AfterFunc(cmd.Context(), func() { _ = l.Close() })()
		return serve(l)
	}
	return cmd
}
