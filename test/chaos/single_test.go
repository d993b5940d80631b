package chaos

import "testing"

// The same as TestReleaseUnderFire with only one gateway, on a stack of its own.
func TestReleaseUnderFireOnOneGateway(t *testing.T) {
	one, r := stackOf(t, 1)
	releaseUnderFire(t, one, r, one.Up.Gateways)
}
