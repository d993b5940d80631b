package routecache_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sandlane/sandlane/routecache"
)

// A request finds no route, resolves the sandbox, and caches what it found. Once the
// address is fenced the route is gone, and what was resolved before does not come back.
func Example() {
	cache := routecache.New(0)
	addr := netip.MustParseAddr("10.0.0.7")

	flight := cache.Enter()
	route := cache.Get("hello")
	flight.Leave()
	fmt.Println("before:", route != nil)

	token := cache.Begin("hello") // before the sandbox is read
	found := &routecache.Route{
		SandboxID: "hello", Pool: routecache.PoolOf("default", "echo"), ClaimID: "c1", PodUID: "u1",
		Addr: addr, PodRV: 41, Use: &routecache.ClaimUse{},
	}
	fmt.Println("cached:", cache.Put(token, found))

	flight = cache.Enter()
	fmt.Println("answer from:", cache.Get("hello").Addr)
	flight.Leave()

	late := cache.Begin("hello")
	if err := cache.Fence(context.Background(), []routecache.Fence{{Addr: addr, RV: 42}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("after the fence:", cache.Get("hello") != nil, cache.Put(late, found))
	// Output:
	// before: false
	// cached: true
	// answer from: 10.0.0.7
	// after the fence: false false
}
