// Command sandlane is Sandlane in one binary: the gateway and the controller
// of a cluster, and everything to run a cluster on one machine. It is flags and
// wiring only; each subcommand calls the package that does the work.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
