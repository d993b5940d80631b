// Command manifests writes the documented manifests from the code that says what
// is in them: docs/rights.yaml and the table of rights between two marks in
// docs/operations.md, docs/network-policies.yaml, the chart's templates that are made
// from code, and the chart's page. It is called by `make
// generate`, from the root of the checkout, and by nobody else.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/egress"
)

const (
	begin = "<!-- rights: written by `make generate` -->\n"
	end   = "<!-- end of rights -->\n"
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
	rights, err := access.YAML(o)
	if err != nil {
		return err
	}
	closed, err := egress.Close(nil)
	if err != nil {
		return err
	}
	policies, err := egress.YAML("default", o.SystemNamespace, closed)
	if err != nil {
		return err
	}
	const page = "docs/operations.md"
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	before, rest, found := strings.Cut(string(old), begin)
	_, after, complete := strings.Cut(rest, end)
	if !found || !complete {
		return fmt.Errorf("%s has no place for the table: want %q and %q", page, begin, end)
	}
	for file, text := range map[string][]byte{
		"docs/rights.yaml":           rights,
		"docs/network-policies.yaml": policies,
		page:                         []byte(before + begin + "\n" + access.Markdown() + "\n" + end + after),
	} {
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // documentation
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return writeCharts()
}
