package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/credentials"
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
