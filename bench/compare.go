package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/bench/report"
	"github.com/sandlane/sandlane/bench/result"
)

func newCompare() *cobra.Command {
	return &cobra.Command{
		Use: "compare A.json B.json", Short: "Show what moved from A to B",
		Long: fmt.Sprintf(`Show what moved from A to B, by the statistics of benchstat: medians, and the
Mann-Whitney U test. Rows with fewer than %d samples on a side get no verdict.`, result.MinSamples),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := result.Load(args[0])
			if err != nil {
				return err
			}
			b, err := result.Load(args[1])
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), report.Comparison(a, b))
			return nil
		},
	}
}

func newRender() *cobra.Command {
	var docs string
	cmd := &cobra.Command{
		Use: "render A.json", Short: "Write performance.md, scale.md and their plots from a result", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&docs, "docs", "docs", "folder for the pages")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := result.Load(args[0])
		if err != nil {
			return err
		}
		if err := os.MkdirAll(docs, 0o755); err != nil {
			return fmt.Errorf("make the folder for pages: %w", err)
		}
		return report.Pages(r, docs)
	}
	return cmd
}
