package routecache

import (
	"net/netip"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRoute returns a route for the sandbox from a pod object of that age.
func testRoute(id, addr string, podRV uint64) *Route {
	return &Route{SandboxID: id, Pool: PoolOf("default", "echo"), ClaimID: "claim-" + id, PodUID: "uid-" + id,
		Addr: netip.MustParseAddr(addr), PodRV: podRV, Use: new(ClaimUse)}
}

// put resolves and puts in one go.
func put(c *Cache, r *Route) bool { return c.Put(c.Begin(r.SandboxID), r) }

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = prefix + strconv.Itoa(i)
	}
	return ids
}
