package e2b

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

var (
	update = flag.Bool("update", false, "write the table of docs/e2b.md")
	// shared is the stack that all SDKs talk to.
	shared *stack.Stack
)

func TestMain(m *testing.M) {
	if etc := os.Getenv(filesEnv); etc != "" {
		fmt.Fprintln(os.Stderr, inNamespace(etc, os.Args[1:]))
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "test/e2b needs root: it gives each sandbox namespaces of its own. Run it as root, or leave it out.")
		return 1
	}
	state, err := os.MkdirTemp("", "sandlane-e2b-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	shared, err = stack.Start(ctx, state, "--isolation", "full", "--pool-size", "1", "--base-pool-size", "6")
	defer func() {
		if code != 0 {
			fmt.Fprintln(os.Stderr, shared.Logs(40))
		}
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if code == 0 {
			_ = os.RemoveAll(state)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
