// Package bubble runs tests in bubbles of testing/synctest: all time in one is virtual.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	mu         sync.Mutex
	running    int
	processors int
)

// Test is synctest.Test on one processor. On several, two goroutines of a bubble can run
// its timers at the same moment, both as the race detector's one goroutine for timers of
// that bubble, and the detector then aborts: "ThreadSanitizer: CHECK failed"
// (https://github.com/golang/go/issues/78156, seen with Go 1.26.8). Races are still found,
// since the detector judges by the order of events and not by what ran at the same time.
// Bubbles of tests that run beside each other share the processor.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	enter()
	defer leave()
	synctest.Test(t, f)
}

func enter() {
	mu.Lock()
	defer mu.Unlock()
	if running++; running == 1 {
		processors = runtime.GOMAXPROCS(1)
	}
}

func leave() {
	mu.Lock()
	defer mu.Unlock()
	if running--; running == 0 {
		runtime.GOMAXPROCS(processors)
	}
}
