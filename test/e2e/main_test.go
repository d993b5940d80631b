// Package e2e tests Sandlane end to end on the real stack: API server, Envoy,
// gateway, controller and local node, through HTTP requests as a user sends
// them. Nothing in it is a fake.
//
// Most tests share one stack (test/stack) and make pools in a namespace of
// their own; those about starting and stopping start their own. Tests that mostly
// wait run beside one another, after the others; those that also work for long take
// turns among them.
package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/sandlane/sandlane/test/stack"
)

// shared is the stack that most tests use.
var shared *stack.Stack

func TestMain(m *testing.M) {
	if root := os.Getenv(bareEnv); root != "" {
		fmt.Fprintln(os.Stderr, enterBareRoot(root))
		os.Exit(1)
	}
	os.Exit(stack.Main(m, func(s *stack.Stack) error { shared = s; return nil }, "--isolation", "full", "--audit"))
}
