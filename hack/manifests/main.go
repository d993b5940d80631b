// Command manifests writes the documented manifests from the code that says what is in
// them: docs/rights.yaml and docs/rights.md, docs/network-policies.yaml, the chart's
// templates that are made from code, and the chart's page. `make generate` calls it, from
// the root of the checkout; no other program does.
package main

import (
	"fmt"
	"os"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/egress"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "manifests: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var o access.Options
	o.Complete()
	rights, err := access.YAML(access.Objects(o))
	if err != nil {
		return err
	}
	closed, err := egress.ClosedRanges(nil)
	if err != nil {
		return err
	}
	policies, err := egress.YAML("default", o.SystemNamespace, closed)
	if err != nil {
		return err
	}
	for file, text := range map[string][]byte{
		"docs/rights.yaml":           rights,
		"docs/network-policies.yaml": policies,
		"docs/rights.md":             []byte(access.Markdown()),
	} {
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // documentation
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return writeCharts()
}
