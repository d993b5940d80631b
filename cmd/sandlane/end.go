package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

var idPattern = regexp.MustCompile(v1alpha1.IDPattern)

func newEnd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "end ID",
		Example: `  sandlane end hello
  sandlane end --kubeconfig ~/.kube/config hello`,
		Short: "End a sandbox; its record stays for a while",
		Args:  cobra.ExactArgs(1),
	}
	on := cmdflags.ForCluster(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id := args[0]
		if err := checkID(id); err != nil {
			return err
		}
		c, err := on.Connect()
		if err != nil {
			return err
		}
		return end(cmd, c, id)
	}
	return cmd
}

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%q is no sandbox ID: 1 to 57 of a-z, 0-9 and dash, neither first nor last a dash", id)
	}
	return nil
}

func end(cmd *cobra.Command, c client.Client, id string) error {
	var s v1alpha1.Sandbox
	err := c.Get(cmd.Context(), client.ObjectKey{Name: id}, &s)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no sandbox %s", id)
	}
	if err != nil {
		return fmt.Errorf("read sandbox %s: %w", id, err)
	}
	if s.Spec.End != nil {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "sandbox %s had already ended (%s)\n", id, s.Spec.End.Reason)
		return err
	}
	// The UID is tested, so that a sandbox that was made meanwhile is not ended.
	err = writes.EndSandbox(cmd.Context(), c, id, v1alpha1.EndReleased, "ended by hand (sandlane end)", writes.OfUID(s.UID))
	if errors.Is(err, writes.ErrStale) {
		return fmt.Errorf("sandbox %s was replaced meanwhile; nothing was ended", id)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "sandbox %s ended\n", id)
	return err
}
