package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/bench/report"
	"github.com/sandlane/sandlane/test/result"
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
	var docs, node string
	cmd := &cobra.Command{
		Use: "render A.json", Short: "Write performance.md, scale.md and their plots from a result", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&docs, "docs", "docs", "folder for the pages")
	cmd.Flags().StringVar(&node, "node", "", "result of a real node (SANDLANE_NODE_RESULT=… make node-test); default the last of "+nodeRuns)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := result.Load(args[0])
		if err != nil {
			return err
		}
		if err := os.MkdirAll(docs, 0o755); err != nil {
			return fmt.Errorf("make the folder for pages: %w", err)
		}
		onNode, err := loadNode(node)
		if err != nil {
			return err
		}
		return report.Pages(r, onNode, docs)
	}
	return cmd
}

// nodeRuns are the results of real nodes; their names begin with the date.
const nodeRuns = "bench/runs/*-node.json"

// loadNode reads the result of a real node, by default the last one; nil if there is none.
func loadNode(path string) (*result.Result, error) {
	if path == "" {
		all, err := filepath.Glob(nodeRuns)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		path = all[len(all)-1]
	}
	return result.Load(path)
}
