// Package chaos tests what must hold with several gateways while processes are
// killed and stopped: that no request is answered by another sandbox's pod,
// that one sandbox has one pod, and that all recovers by itself. It runs on the
// real stack with three gateways, pod addresses that are used again at once,
// and leases of seconds.
//
// Each test puts load on the stack, does its harm, and judges every answer by
// the history of claims (test/history). It says what it did, and fails if that
// was too little to prove anything. Signals go only to processes that the stack
// started, by their PID in up.json.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// The gateways' leases, and what the controller adds: half of one.
const (
	lease      = 12 * time.Second
	leaseRenew = 2 * time.Second
	// drainGrace is how long a gateway that is told to stop waits for streams.
	drainGrace = 4 * time.Second
)

var (
	shared *stack.Stack
	record *history.Recorder
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "test/chaos needs root: it gives each sandbox namespaces of its own. Run it as root, or leave it out.")
		return 1
	}
	state, err := os.MkdirTemp("", "sandlane-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := checkFailpoints(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if points, err = os.MkdirTemp("", "sandlane-chaos-points-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(points) }()
	if err := os.Setenv("SANDLANE_FAILPOINTS", points); err != nil { // for `up` and its children
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared, err = stack.Start(ctx, state, "--isolation", "full", "--gateways", "3", "--pool-size", "0", "--idle-timeout", "0",
		"--reuse-addresses", "--lease-duration", lease.String(), "--lease-renew-every", leaseRenew.String(),
		"--drain-grace", drainGrace.String())
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
	record = history.NewRecorder()
	if err := record.Start(context.Background(), shared.Client); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer record.Stop()
	return m.Run()
}
