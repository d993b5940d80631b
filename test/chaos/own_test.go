package chaos

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// stackOf starts a stack with that many gateways, further arguments and a record of its
// claims, both until the test ends.
func stackOf(t *testing.T, gateways int, args ...string) (*stack.Stack, *history.Recorder) {
	t.Helper()
	state, err := os.MkdirTemp("", "sandlane-chaos-own-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	own, err := stack.Start(ctx, state, append([]string{"--isolation", "full", "--gateways", strconv.Itoa(gateways), "--pool-size", "0", "--idle-timeout", "0",
		"--reuse-addresses", "--lease-duration", lease.String(), "--lease-renew-every", leaseRenew.String()}, args...)...)
	t.Cleanup(func() {
		if t.Failed() && own != nil {
			t.Log(own.Logs(40))
		}
		if own != nil {
			if err := own.Stop(); err != nil {
				t.Error(err)
			}
		}
		if !t.Failed() {
			_ = os.RemoveAll(state)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := closeDefaultPool(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	r := history.NewRecorder()
	if err := r.Start(context.WithoutCancel(t.Context()), own.Client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	if n := len(own.Up.Gateways); n != gateways {
		t.Fatalf("the stack has %d gateways, want %d", n, gateways)
	}
	return own, r
}

// share makes this stack the shared one until the test ends.
func share(t *testing.T, s *stack.Stack, r *history.Recorder) {
	t.Helper()
	sharedBefore, recordBefore := shared, record
	shared, record = s, r
	t.Cleanup(func() { shared, record = sharedBefore, recordBefore })
}
