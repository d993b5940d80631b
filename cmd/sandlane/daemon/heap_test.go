package daemon

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestHeapPercent(t *testing.T) {
	for _, c := range []struct {
		name         string
		growth, live uint64
		want         int
	}{
		{"a small gateway", 128 << 20, 16 << 20, 800},
		{"as large as the growth", 128 << 20, 128 << 20, 100},
		{"a large one doubles as ever", 128 << 20, 500 << 20, 100},
		{"before the first collection", 128 << 20, 0, math.MaxInt32},
		{"next to nothing", math.MaxInt64, 1, math.MaxInt32},
	} {
		if got := heapPercent(c.growth, c.live); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

var keep []byte // allocated on the heap

// collections says how often it was collected while that many bytes of garbage were
// made.
func collections(garbage int) uint32 {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range garbage >> 12 {
		keep = make([]byte, 1<<12)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// A small heap is collected once its growth is used up, and not whenever it has
// doubled.
func TestGrowHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(goPercent)
	defer debug.SetGCPercent(before)
	// As much as a small gateway has: Go adds a process's globals to the live heap before it
	// takes the percentage, and beside next to nothing they would be most of it.
	live := make([]byte, 16<<20)
	defer runtime.KeepAlive(live)
	// Without GrowHeap the heap doubles between collections, whatever tests before this one
	// have left in it.
	runtime.GC()
	growth := max(64<<20, 12*int(liveHeap()))
	often := collections(growth)
	stop := GrowHeap(uint64(growth))
	defer stop()
	for range 3 { // it follows the heap: more than one collection
		if n := collections(growth * 3 / 4); n > 1 {
			t.Errorf("collected %d times within its growth; %d times without it", n, often)
		}
	}
	if n := collections(4 * growth); n < 2 {
		t.Errorf("collected %d times while it grew to four times its growth", n)
	}
	stop()
	if p := debug.SetGCPercent(goPercent); p != goPercent {
		t.Errorf("%d %% after it was stopped", p)
	}
	if often < 3 {
		t.Errorf("collected %d times without it: this test shows nothing", often)
	}
}

// What the environment says stays.
func TestGrowHeapIsLeftOut(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := debug.SetGCPercent(50)
	defer debug.SetGCPercent(before)
	GrowHeap(1 << 30)()
	if p := debug.SetGCPercent(50); p != 50 {
		t.Errorf("$GOGC was 50 and is %d", p)
	}
}
