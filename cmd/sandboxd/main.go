// Command sandboxd is the agent that runs inside a sandbox and speaks E2B's envd
// protocol. Started by the name sudo, it is the command that has the agent run another
// as root; by the name sandboxd-files, the agent's child that does file calls as root. It is
// a few lines over packages sandboxd, sudo and rootfiles.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sandlane/sandlane/sandboxd"
	"github.com/sandlane/sandlane/sandboxd/rootfiles"
	"github.com/sandlane/sandlane/sandboxd/sudo"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case sudo.Name:
		os.Exit(sudo.Main(os.Args[1:]))
	case rootfiles.Name:
		os.Exit(rootfiles.Main(os.Args[1:]))
	}
	os.Exit(sandboxd.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
