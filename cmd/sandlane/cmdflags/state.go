package cmdflags

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/local"
)

const stateUsage = "state folder (default $XDG_STATE_HOME/sandlane or ~/.local/state/sandlane)"

// State adds --state to a command and returns what reads it.
func State(cmd *cobra.Command) func() (string, error) {
	dir := cmd.Flags().String("state", "", stateUsage)
	Folders(cmd, "state")
	return func() (string, error) { return StateDir(*dir) }
}

// StateDir makes a --state absolute, or gives the default.
func StateDir(dir string) (string, error) {
	if dir == "" {
		return local.DefaultStateDir()
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--state %s: %w", dir, err)
	}
	return abs, nil
}
