package daemon

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// DefaultHeapGrowth is what a gateway may allocate between two garbage collections
// at least. A small one answers some 20,000 requests with it.
const DefaultHeapGrowth = 128 << 20

// GrowHeap lets the heap grow by `bytes` before it is collected, also where
// little of it is in use: Go collects when it has doubled, which for a small gateway
// is many times a second, and each time slows the requests of that moment. A heap
// that is larger than that doubles, as before. It does nothing for 0, or where $GOGC
// has decided; $GOMEMLIMIT holds in any case. The caller stops it.
func GrowHeap(bytes uint64) (stop func()) {
	if bytes == 0 || os.Getenv("GOGC") != "" {
		return func() {}
	}
	t := &heapTuner{growth: min(bytes, uint64(debug.SetMemoryLimit(-1))/4)}
	t.afterCollection()
	return t.stop
}

// heapTuner follows the live heap: each collection frees a small object, whose
// cleanup sets the percentage for the next one and makes another such object.
type heapTuner struct {
	growth uint64

	mu      sync.Mutex
	percent int // that was set; 0 until then
	stopped bool
}

func (t *heapTuner) afterCollection() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	// To set it stops the process for a moment, so small changes are left out.
	if p := heapPercent(t.growth, liveHeap()); p*10 > t.percent*11 || p*11 < t.percent*10 {
		t.percent = p
		debug.SetGCPercent(p)
	}
	runtime.AddCleanup(new(collected), func(t *heapTuner) { t.afterCollection() }, t)
}

func (t *heapTuner) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	debug.SetGCPercent(goPercent)
}

// collected is an object that nothing refers to. It has a pointer, so that the allocator
// does not put it into one block with others, which would keep it alive.
type collected struct{ _ *byte }

// goPercent is Go's own.
const goPercent = 100

// heapPercent is how much of the live heap, in percent, may be allocated before the
// next collection.
func heapPercent(growth, live uint64) int {
	if live == 0 || growth/live >= math.MaxInt32/100 {
		return math.MaxInt32
	}
	return max(goPercent, int(100*growth/live))
}

// liveHeap is what the last collection left.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
