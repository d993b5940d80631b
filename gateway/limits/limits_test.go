package limits

import (
	"context"
	"errors"
	"maps"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

const streams = 2500 // the chart's

func fill(t *testing.T, w *Waiting, namespace string, keyed bool, names int) (n int, err error) {
	t.Helper()
	for ; n < 3*streams; n++ {
		if _, err = w.Wait(namespace, namespace+string(rune('a'+n%names)), keyed); err != nil {
			return n, err
		}
	}
	return n, nil
}

// What waits is bounded: half of the streams in all, less for one namespace, less again
// without a key, and for one name. Other namespaces always have places.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		keyed       bool
		names       int
		least, most int
		want        error
	}{
		"with a key":    {true, 20, streams * 3 / 8, streams / 2 * 9 / 10, routing.ErrNamespaceParking},
		"without a key": {false, 20, streams / 5, streams / 4, routing.ErrKeylessParking},
		"one name":      {true, 1, streams / 10, streams / 8, routing.ErrNameParking},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWaiting(NewReader(Options{MaxStreams: streams}), streams)
			n, err := fill(t, w, "greedy", tc.keyed, tc.names)
			if !errors.Is(err, tc.want) || n < tc.least || n > tc.most {
				t.Errorf("%d waited, then %v", n, err)
			}
			for _, keyed := range []bool{true, false} {
				if n, err := fill(t, w, "other", keyed, 20); n < 20 {
					t.Errorf("keyed %v: %d of another namespace waited, then %v", keyed, n, err)
				}
			}
		})
	}
	t.Run("a stranger's key", func(t *testing.T) {
		t.Parallel()
		w := NewWaiting(NewReader(Options{MaxStreams: streams}), streams)
		for range streams {
			_, _ = w.Wait("stranger", "sandbox", true)
		}
		if _, err := w.Wait("owner", "sandbox", true); err != nil {
			t.Errorf("no place for the owner of the sandbox: %v", err)
		}
	})
	t.Run("places are given back", func(t *testing.T) {
		t.Parallel()
		w := NewWaiting(NewReader(Options{MaxStreams: streams}), streams)
		for range 10 * streams {
			leave, err := w.Wait("ns", "a", false)
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
		if w.Taken() != 0 || len(w.of)+len(w.names) != 0 {
			t.Errorf("left: %+v", w)
		}
	})
}

func route(namespace string) *routecache.Route {
	return &routecache.Route{SandboxID: "s", Pool: routecache.PoolOf(namespace, "pool")}
}

// openWorld is an Envoy of which only the counts are there.
type openWorld struct {
	*OpenRequests
	mu    sync.Mutex // guards open, begun and answered
	open  map[string]int
	spare map[string]int // connections without a request
	begun int
	// pending wait for a connection; failed got none, retried of which are tried again.
	pending, failed, retried int
	answered                 uint64
	err                      error
	withdrawn                int
}

func newOpenWorld() *openWorld {
	w := &openWorld{open: map[string]int{}}
	w.OpenRequests = NewOpenRequests(OpenOptions{
		Limits: NewReader(Options{MaxStreams: streams}), Room: streams + streams/8 + 1,
		Total:   func(context.Context) (Load, error) { return w.load(), w.err },
		Refresh: func(context.Context) error { w.poll(); return w.err },
	})
	return w
}

func (w *openWorld) load() Load {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := Load{Pending: w.pending, Begun: w.begun + w.failed, Retried: w.retried}
	for _, m := range w.open {
		l.Active += m
	}
	return l
}

func (w *openWorld) each() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.open)
}

// has sets what a namespace has open.
func (w *openWorld) has(namespace string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[namespace] = n
}

// poll is one of Envoy's addresses, look one of its total and a poll.
func (w *openWorld) poll() {
	looked := w.Looking()
	if w.err != nil {
		looked(nil, nil)
		return
	}
	looked(w.each(), w.spare)
}

func (w *openWorld) look() {
	w.OpenRequests.look(context.Background())
	w.poll()
}

// sends sends up to n requests, which stay open, and returns how many were admitted.
func (w *openWorld) sends(namespace string, n int) (admitted int) {
	for r := route(namespace); admitted < n && w.Open(r); admitted++ {
		w.open[namespace]++
		w.begun++
	}
	return admitted
}

// A namespace with few open requests is served though all are counted as more than the room.
func TestFewAreAdmittedWhateverIsCounted(t *testing.T) {
	t.Parallel()
	w := newOpenWorld()
	w.OpenRequests.total.Store(3 * streams)
	if n := w.sends("other", streams); n != int(w.few()) {
		t.Errorf("%d are admitted", n)
	}
}

// What was admitted counts until Envoy has begun it, though Envoy is asked before; what it
// never begins is forgotten.
func TestRequestsInTransitCount(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		w.look()
		w.sends("greedy", streams-200)
		for range 3 {
			for range 200 {
				w.Open(route("greedy"))
			}
			w.look()
			more := w.sends("greedy", 200)
			time.Sleep(restMin)
			w.open["greedy"] += 200
			w.begun += 200
			w.look()
			if more += w.sends("greedy", 200); more > 50 {
				t.Fatalf("%d more were admitted", more)
			}
			w.open["greedy"] -= 200 + more
			w.look()
		}
		for range 200 {
			w.Open(route("greedy"))
		}
		w.open["greedy"] = 0
		w.look()
		time.Sleep(transitMax)
		w.look()
		if n := w.sends("greedy", 2*streams); n < streams*99/100 {
			t.Errorf("%d are admitted when none is open", n)
		}
	})
}

// One namespace that is alone has all streams; others have room beside it, and then it gets
// no more until it has its share.
func TestSharesOfOpenRequests(t *testing.T) {
	t.Parallel()
	w := newOpenWorld()
	for _, when := range []string{"before a look", "after it"} {
		if n := w.sends("greedy", 2*streams); when == "before a look" && n != streams || when == "after it" && n != 0 {
			t.Errorf("%s %d were admitted", when, n)
		}
		w.look()
	}
	if n := w.sends("other", 150); n != 150 {
		t.Errorf("another namespace: %d", n)
	}
	w.open["greedy"] -= 100
	w.look()
	if w.sends("greedy", 1) != 0 || w.sends("other", 20) != 20 {
		t.Error("the greedy one has places that others need")
	}
	w.open["greedy"] -= 1500
	w.look()
	if w.sends("greedy", 1) != 1 {
		t.Error("below its share a namespace is refused")
	}
}

// Many short requests are no open ones: looks between the polls see that.
func TestShortRequestsAreNotOpen(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Start(ctx) }()
		r := route("fast")
		for i := range 50 * streams {
			if !w.Open(r) {
				t.Fatalf("request %d is refused", i)
			}
			w.mu.Lock()
			w.begun++
			w.mu.Unlock()
			if i%500 == 0 { // 20,000 a second
				time.Sleep(25 * time.Millisecond)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Without an answer of Envoy's no share binds.
func TestUnreadableEnvoyRefusesNothing(t *testing.T) {
	t.Parallel()
	w := newOpenWorld()
	w.sends("a", streams)
	w.err = errors.New("away")
	w.look()
	if n := w.sends("a", 100); n != 100 {
		t.Errorf("%d", n)
	}
}

// A namespace with many requests that Envoy answers by itself leaves its table before it has
// all streams, and comes back when it has few. Others stay.
func TestGreedyNamespaceLeavesTheTable(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		greedy, other := route("greedy"), route("other")
		w.Over(greedy)
		w.Over(other)
		w.FastPath(func() uint64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.answered
		}, func(of func(unique.Handle[routecache.Pool]) bool) {
			if !of(greedy.Pool) || of(other.Pool) || !w.Over(greedy) {
				t.Error("the wrong routes are withdrawn, or before they are over")
			}
			w.withdrawn++
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Start(ctx) }()
		var left int
		for range 50 { // 2,600 within 500 ms
			synctest.Wait()
			if w.Over(greedy) && left == 0 {
				left = w.each()["greedy"]
			}
			if !w.Over(greedy) {
				w.mu.Lock()
				w.open["greedy"] += 52
				w.answered += 52
				w.begun += 52
				w.mu.Unlock()
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if left < streams/2 || left > streams || w.withdrawn != 1 || w.Over(other) {
			t.Errorf("left the table with %d open, withdrawn %d times", left, w.withdrawn)
		}
		w.has("greedy", 100)
		w.look()
		if w.Over(greedy) {
			t.Error("it does not come back")
		}
		stop()
		<-done
	})
}

// Pools that were deleted are forgotten; those with open requests are not.
func TestDeletedPoolsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newOpenWorld()
	w.sends("stays", 100)
	for i := range 20 * pruneMin {
		name := strconv.Itoa(i)
		w.sends(name, 1)
		w.has(name, 0)
		if i%100 == 0 {
			w.look()
		}
	}
	w.look()
	if n := max(len(*w.counts.Load()), len(w.namespaces)); n > 2*pruneMin {
		t.Errorf("%d pools are kept", n)
	}
	if n := w.namespaces["stays"]; n == nil || n.open.Load() != 100 || w.OpenRequests.total.Load() != 100 {
		t.Errorf("of those with open requests there is %+v, in all %d", n, w.OpenRequests.total.Load())
	}
}

func TestOpenAllocatesNothing(t *testing.T) {
	w := NewOpenRequests(OpenOptions{Limits: NewReader(Options{MaxStreams: math.MaxInt32}), Room: math.MaxInt32})
	r := route("ns")
	if n := testing.AllocsPerRun(1000, func() { w.Open(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOpen(b *testing.B) {
	w := NewOpenRequests(OpenOptions{Limits: NewReader(Options{MaxStreams: math.MaxInt32}), Room: math.MaxInt32})
	r := route("ns")
	b.Run("sequential", func(b *testing.B) {
		for b.Loop() {
			w.Open(r)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				w.Open(r)
			}
		})
	})
}
