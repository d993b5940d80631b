// Command rights writes the documentation of what Sandlane's processes may do at
// the API server: docs/rights.yaml, and the table between two marks in
// docs/operations.md. It is called by `make generate`, from the root of the
// checkout, and by nobody else.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/sandlane/sandlane/access"
)

const (
	begin = "<!-- rights: written by `make generate` -->\n"
	end   = "<!-- end of rights -->\n"
)

func main() {
	if err := run("docs/rights.yaml", "docs/operations.md"); err != nil {
		fmt.Fprintf(os.Stderr, "rights: %v\n", err)
		os.Exit(1)
	}
}

func run(manifest, page string) error {
	var o access.Options
	o.Complete()
	text, err := access.YAML(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(manifest, text, 0o644); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write the manifest: %w", err)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	before, rest, found := strings.Cut(string(old), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the table: want %q and %q", page, begin, end)
	}
	if err := os.WriteFile(page, []byte(before+begin+"\n"+access.Markdown()+"\n"+end+after), 0o644); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
