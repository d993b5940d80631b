package daemon

import (
	"os"
	"runtime"
)

// ShareProcessors leaves Envoy its half of the machine's processors: the gateway
// answers each request in a few microseconds, and threads of its own that look for
// more to do take them from Envoy, which has most of the work. Where the gateway's
// processors are limited, by its container or $GOMAXPROCS, they are its own.
func ShareProcessors() {
	if n := shared(runtime.GOMAXPROCS(0), runtime.NumCPU(), os.Getenv("GOMAXPROCS")); n > 0 {
		runtime.GOMAXPROCS(n)
	}
}

// shared is how many processors to use of those of the machine; 0 means as it is.
func shared(allowed, machine int, chosen string) int {
	if chosen != "" || allowed < machine {
		return 0
	}
	return (machine + 1) / 2
}
