package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/local"
)

const stateUsage = "state folder (default $XDG_STATE_HOME/sandlane or ~/.local/state/sandlane)"

// stateFlag adds --state to a command and returns what reads it.
func stateFlag(cmd *cobra.Command) func() (string, error) {
	dir := cmd.Flags().String("state", "", stateUsage)
	takeFolders(cmd, "state")
	return func() (string, error) { return stateDir(*dir) }
}

// stateDir makes a --state absolute, or gives the default.
func stateDir(dir string) (string, error) {
	if dir == "" {
		return local.DefaultStateDir()
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--state %s: %w", dir, err)
	}
	return abs, nil
}
