// Command sandboxd is the agent that runs inside a sandbox and speaks E2B's envd
// protocol. Started by the name sudo, it is the command that has the agent run another
// as root. It is a few lines over packages sandboxd and sudo.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sandlane/sandlane/sandboxd"
	"github.com/sandlane/sandlane/sandboxd/sudo"
)

func main() {
	if filepath.Base(os.Args[0]) == sudo.Name {
		os.Exit(sudo.Main(os.Args[1:]))
	}
	os.Exit(sandboxd.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
