package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/extproc"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token ID",
		Example: `  sandlane token hello
  sandlane token --traffic hello`,
		Short: "Print the token of a sandbox",
		Long: `Print the token that sandboxd asks for in a sandbox (header X-Access-Token), or
with --traffic the one that a private sandbox asks for on its other ports (header
E2b-Traffic-Access-Token). Tokens are derived from the ID and the UID of the
sandbox: those who may read the cluster's token seed have them all.`,
		Args: cobra.ExactArgs(1),
	}
	on := cmdflags.ForCluster(cmd)
	traffic := cmd.Flags().Bool("traffic", false, "the traffic token, not sandboxd's")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkID(args[0]); err != nil {
			return err
		}
		c, err := on.Connect()
		if err != nil {
			return err
		}
		return token(cmd, c, on.SystemNamespace, args[0], *traffic)
	}
	return cmd
}

// token prints a token of a sandbox that exists. A gateway has made the seed.
func token(cmd *cobra.Command, c client.Client, systemNamespace, id string, traffic bool) error {
	var s v1alpha1.Sandbox
	err := c.Get(cmd.Context(), client.ObjectKey{Name: id}, &s)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no sandbox %s", id)
	}
	if err != nil {
		return fmt.Errorf("read sandbox %s: %w", id, err)
	}
	if !traffic && s.Spec.Network.Unsecured {
		return fmt.Errorf("sandbox %s was made unsecured: its sandboxd asks for no token", id)
	}
	if traffic {
		asked, err := asksForTrafficToken(cmd.Context(), c, &s)
		if err != nil {
			return err
		}
		if !asked {
			return fmt.Errorf("sandbox %s is not private: its ports ask for no token", id)
		}
	}
	tokens, err := credentials.LoadTokens(cmd.Context(), c, systemNamespace)
	if err != nil {
		return err
	}
	text := tokens.Envd(id, s.UID)
	if traffic {
		text = tokens.Traffic(id, s.UID)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// asksForTrafficToken reports whether the sandbox is private, or was made by name
// from a pool whose sandboxes are reached by token.
func asksForTrafficToken(ctx context.Context, c client.Client, s *v1alpha1.Sandbox) (bool, error) {
	if s.Spec.Network.Private || v1alpha1.GeneratedID(s.Name) {
		return s.Spec.Network.Private, nil
	}
	var pool v1alpha1.SandboxPool
	err := c.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}, &pool)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read pool %s: %w", s.Spec.Pool, err)
	}
	return err == nil && v1alpha1.ReachOf(&pool.Spec) == v1alpha1.ReachToken, nil
}

func newOpen() *cobra.Command {
	cmd := &cobra.Command{
		Use: "open ID PORT",
		Example: `  sandlane open hello 8000
  sandlane open hello 8000 --kubeconfig ~/.kube/config --domain sandboxes.example.com`,
		Short: "Print a link that opens a port of a sandbox in a browser",
		Long: `Print a link that opens a port of a sandbox in a browser, whatever token or key the
port asks for. The link works once, within a minute; the browser that opens it keeps the
port open until the sandbox ends. It takes the rights to read the cluster's token seed and
to make Leases beside it. Browsers open ports with TLS or below localhost only.`,
		Args: cobra.ExactArgs(2),
	}
	on := cmdflags.ForCluster(cmd)
	domain := cmdflags.Domain(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkID(args[0]); err != nil {
			return err
		}
		port, err := strconv.ParseUint(args[1], 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q is no port: 1 to 65535", args[1])
		}
		below, err := on.Sandboxes(*domain)
		if err != nil {
			return err
		}
		c, err := on.Connect()
		if err != nil {
			return err
		}
		var s v1alpha1.Sandbox
		if err := c.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, &s); apierrors.IsNotFound(err) {
			return fmt.Errorf("there is no sandbox %s", args[0])
		} else if err != nil {
			return fmt.Errorf("read sandbox %s: %w", args[0], err)
		}
		if s.Spec.End != nil || s.DeletionTimestamp != nil {
			return fmt.Errorf("sandbox %s has ended", s.Name)
		}
		link, err := linksBelow(below, on.SystemNamespace)(cmd.Context(), c, &s, uint16(port))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
		return err
	}
	return cmd
}

// linksBelow makes links that open a port of a sandbox once (credentials has their states).
func linksBelow(below url.URL, systemNamespace string) func(ctx context.Context, api client.Client, s *v1alpha1.Sandbox, port uint16) (string, error) {
	return func(ctx context.Context, api client.Client, s *v1alpha1.Sandbox, port uint16) (string, error) {
		tokens, err := credentials.LoadTokens(ctx, api, systemNamespace)
		if err != nil {
			return "", err
		}
		ticket, err := tokens.IssueTicket(ctx, credentials.Port{ID: s.Name, UID: s.UID, Number: port})
		if err != nil {
			return "", err
		}
		at := below
		at.Host = fmt.Sprintf("%d-%s.%s", port, s.Name, below.Host)
		at.Path, at.RawQuery = extproc.LinkPath, url.Values{"ticket": {ticket}}.Encode()
		return at.String(), nil
	}
}
