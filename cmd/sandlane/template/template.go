package template

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/local"
)

// New makes the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "template",
		Example: "  sandlane template build --name mine .",
		Short:   "Build templates of Dockerfiles, list and delete them",
		Long: `Build templates of Dockerfiles, list and delete them, by a gateway's REST API: that of
"sandlane up", or the one that --url and --key name.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	at := addFlags(cmd)
	cmd.AddCommand(newBuild(at), newList(at), newDelete(at))
	return cmd
}

// flags name the REST API.
type flags struct{ url, key, state string }

func addFlags(cmd *cobra.Command) *flags {
	at, f := &flags{}, cmd.PersistentFlags()
	f.StringVar(&at.url, "url", "", "`URL` of the REST API (default that of \"sandlane up\")")
	f.StringVar(&at.key, "key", "", "API `KEY` (default that of \"sandlane up\", with --url $E2B_API_KEY)")
	f.StringVar(&at.state, "state", "", "state folder of \"sandlane up\" (default $XDG_STATE_HOME/sandlane or ~/.local/state/sandlane)")
	cmdflags.Folders(cmd, "state")
	return at
}

func (f *flags) connect() (*api, error) {
	if f.url != "" {
		key := cmp.Or(f.key, os.Getenv("E2B_API_KEY"))
		switch {
		case f.state != "":
			return nil, errors.New("--url and --state name two gateways: give one of them")
		case key == "":
			return nil, errors.New("--url needs --key, or E2B_API_KEY")
		}
		return newAPI(f.url, key, "")
	}
	dir, err := cmdflags.StateDir(f.state)
	if err != nil {
		return nil, err
	}
	up, err := local.ReadUpFile(dir)
	if err != nil {
		return nil, err
	}
	return newAPI(up.GatewayURL, cmp.Or(f.key, up.APIKey), up.CAFile)
}

func newList(at *flags) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  sandlane template list",
		Short:   "List the templates of the API key's namespace",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := at.connect()
			if err != nil {
				return err
			}
			var all []struct {
				TemplateID, BuildStatus        string
				Names                          []string
				CPUCount, MemoryMB, BuildCount int
				UpdatedAt                      time.Time
			}
			if err := a.call(cmd.Context(), "GET", "/templates", nil, &all); err != nil {
				return fmt.Errorf("list templates: %w", err)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tID\tSTATUS\tBUILDS\tCPUS\tMEMORY\tUPDATED")
			for _, t := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d MB\t%s\n", cmp.Or(strings.Join(t.Names, ","), "-"), t.TemplateID, t.BuildStatus,
					t.BuildCount, t.CPUCount, t.MemoryMB, t.UpdatedAt.UTC().Format(time.DateTime))
			}
			return w.Flush()
		},
	}
}

func newDelete(at *flags) *cobra.Command {
	return &cobra.Command{
		Use:     "delete TEMPLATE",
		Example: "  sandlane template delete mine",
		Short:   "Delete a template with all its builds; sandboxes that run go on",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := at.connect()
			if err != nil {
				return err
			}
			if err := a.call(cmd.Context(), "DELETE", "/templates/"+escape(args[0]), nil, nil); err != nil {
				return fmt.Errorf("delete the template %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "template %s deleted\n", args[0])
			return err
		},
	}
}
