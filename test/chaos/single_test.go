package chaos

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// The same as TestReleaseUnderFire where there is one gateway only, on a stack
// of its own.
func TestReleaseUnderFireOnOneGateway(t *testing.T) {
	state, err := os.MkdirTemp("", "sandlane-chaos-one-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	one, err := stack.Start(ctx, state, "--isolation", "full", "--gateways", "1", "--pool-size", "0", "--idle-timeout", "0",
		"--reuse-addresses", "--lease-duration", lease.String(), "--lease-renew-every", leaseRenew.String())
	t.Cleanup(func() {
		if t.Failed() && one != nil {
			t.Log(one.Logs(40))
		}
		if one != nil {
			if err := one.Stop(); err != nil {
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
	r := history.NewRecorder()
	if err := r.Start(context.WithoutCancel(t.Context()), one.Client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	if n := len(one.Up.Gateways); n != 1 {
		t.Fatalf("the stack has %d gateways, want 1", n)
	}
	releaseUnderFire(t, one, r, one.Up.Gateways)
}
