package chaos

import "testing"

// The same as TestReleaseUnderFire where there is one gateway only, on a stack
// of its own.
func TestReleaseUnderFireOnOneGateway(t *testing.T) {
	one, r := stackOf(t, 1)
	releaseUnderFire(t, one, r, one.Up.Gateways)
}
