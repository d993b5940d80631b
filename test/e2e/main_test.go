// Package e2e tests Sandlane end to end on the real stack: API server, Envoy,
// gateway, controller and local node, through HTTP requests as a user sends
// them. Nothing in it is a fake.
//
// Most tests share one stack (test/stack) and make pools in a namespace of
// their own; those about starting and stopping start their own.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// shared is the stack that most tests use.
var shared *stack.Stack

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "test/e2e needs root: it gives each sandbox namespaces of its own. Run it as root, or leave it out.")
		return 1
	}
	state, err := os.MkdirTemp("", "sandlane-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	began := time.Now()
	shared, err = stack.Start(ctx, state, "--isolation", "full")
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
	fmt.Printf("the stack was up after %v\n", time.Since(began).Round(100*time.Millisecond))
	return m.Run()
}
