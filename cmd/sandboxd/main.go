// Command sandboxd is the agent that runs inside a sandbox and speaks E2B's envd
// protocol. It is three lines over package sandboxd.
package main

import (
	"context"
	"os"

	"github.com/sandlane/sandlane/sandboxd"
)

func main() {
	os.Exit(sandboxd.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
