// Package chaos tests what must hold with several gateways while processes are
// killed and stopped: that no request is answered by another sandbox's pod,
// that one sandbox has one pod, and that all processes recover by themselves. It runs on
// the real stack with three gateways, pod addresses that are used again at once,
// and leases of seconds.
//
// Each test puts load on the stack, injects its faults, and judges every answer by the
// history of claims (test/history). It logs what it did, and fails if that was too little
// to prove anything. It signals only processes that the stack started, by their PID in
// up.json.
//
// The mixed runs (mixed_test.go) do all of that at once, in an order that a seed
// decides: for half a minute in `make test-more`, for ten minutes in `make chaos`. They
// check only what must hold whatever happens; how soon each part recovers is checked by
// the other tests.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// The duration of the gateways' leases, and the grace that the controller adds: half of it.
const (
	lease      = 12 * time.Second
	leaseRenew = 2 * time.Second
	// drainGrace is how long a gateway that is told to stop waits for streams.
	drainGrace = 4 * time.Second
)

var (
	shared *stack.Stack
	record *history.Recorder
	// tables are the folders of the gateways' route tables; none where Envoy answers
	// nothing by itself. They are found before a test kills the gateways.
	tables []string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if points, err = os.MkdirTemp("", "sandlane-chaos-points-"); err == nil {
		defer func() { _ = os.RemoveAll(points) }()
		err = errors.Join(checkFailpoints(), os.Setenv("SANDLANE_FAILPOINTS", points)) // for `up` and its children
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	record = history.NewRecorder()
	defer record.Stop()
	return stack.Main(m, func(s *stack.Stack) error {
		shared = s
		if tables, err = tableFolders(s); err != nil {
			return err
		}
		if err := closeDefaultPool(context.Background(), s); err != nil {
			return err
		}
		return record.Start(context.Background(), s.Client)
	}, "--isolation", "full", "--gateways", "3", "--pool-size", "0", "--idle-timeout", "0",
		"--reuse-addresses", "--lease-duration", lease.String(), "--lease-renew-every", leaseRenew.String(),
		"--drain-grace", drainGrace.String(), "--audit")
}
