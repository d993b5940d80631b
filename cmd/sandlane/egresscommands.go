package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/egress/record"
)

// recordsRead is how many lines of each log are searched for records.
const recordsRead = 100_000

func newEgressRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rotate",
		Example: "  sandlane egress rotate --kubeconfig ~/.kube/config",
		Short:   "Replace the keys of egress processes; what was sealed before opens still",
		Long: `Replace the pair of keys that values are sealed to, and the authority of certificates for
hosts with rules, by the next ones, and make others for the rotation after this one. What was
sealed before opens still, and egress processes follow within ten seconds. A sandbox that
outlives two rotations needs its rules set again.`,
		Args: cobra.NoArgs,
	}
	on := cmdflags.ForCluster(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := on.Connect()
		if err != nil {
			return err
		}
		if err := keys.Rotate(cmd.Context(), c, on.SystemNamespace); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "new values are sealed to new keys, and egress processes follow within ten seconds; a sandbox that outlives two rotations needs its rules set again")
		return err
	}
	return cmd
}

func newEgressLog() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "log ID",
		Example: "  sandlane egress log hello\n  sandlane egress log --kubeconfig ~/.kube/config hello",
		Short:   "Show what a sandbox connected to by name, and what it was refused",
		Long: `Show what a sandbox connected to by name, and what it was refused: when, to which host
and port, what became of it, the rule whose headers it got, bytes to and from the host,
and for how long. Port 53 is a name that had no answer. It searches the newest lines of
the egress processes' logs, where each record is a line of JSON.`,
		Args: cobra.ExactArgs(1),
	}
	on := cmdflags.ForCluster(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkID(args[0]); err != nil {
			return err
		}
		cfg, err := on.Config()
		if err != nil {
			return err
		}
		find, err := on.Processes(cfg)
		if err != nil {
			return err
		}
		all, err := find(cmd.Context())
		if err != nil {
			return err
		}
		found, errs := make([][]record.Record, len(all)), make([]error, len(all))
		var reading sync.WaitGroup
		for i, p := range all {
			reading.Go(func() {
				text, err := p.ReadLog(cmd.Context(), recordsRead)
				found[i], errs[i] = record.Of(text, args[0]), err
			})
		}
		reading.Wait()
		for _, err := range errs {
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "sandlane: %v\n", err)
			}
		}
		records := slices.SortedFunc(slices.Values(slices.Concat(found...)), func(a, b record.Record) int { return a.Time.Compare(b.Time) })
		if err := errors.Join(errs...); len(records) == 0 && err != nil {
			return errors.New("no record was found, and not every log could be read")
		}
		if len(records) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "there is no record of sandbox %s\n", args[0])
			return nil
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TIME\tHOST\tVERDICT\tRULE\tSENT\tRECEIVED\tOPEN\t")
		for _, r := range records {
			fmt.Fprintln(w, r)
		}
		return w.Flush()
	}
	return cmd
}
