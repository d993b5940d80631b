package routecache

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// world is a small cluster in which addresses change hands: claim after claim
// runs on an address, ends, is fenced, and is followed by the next. A lagging
// view stands for the index; handlers resolve from it or from the truth, slowly.
// Sandbox watches lag for ever (Invalidate is never called): only fences protect.
type world struct {
	cache *Cache
	// fence and put are the steps under test; broken variants replace them.
	fence func(context.Context, Fence) error
	put   func(Token, *Route) bool

	api    sync.Mutex // orders writes and events
	rv     uint64
	events chan func()
	truth  []atomic.Pointer[worldPod]
	view   []atomic.Pointer[worldPod]
	fenced []atomic.Int64 // by address: the last claim whose fence was acknowledged

	answers, wrong atomic.Int64
}

type worldPod struct {
	claim   int64
	rv      uint64
	running bool
}

func newWorld(addresses int) *world {
	c := New(64)
	return &world{
		cache: c, put: c.Put,
		fence:  func(ctx context.Context, f Fence) error { return c.Fence(ctx, []Fence{f}) },
		events: make(chan func(), 64),
		truth:  make([]atomic.Pointer[worldPod], addresses),
		view:   make([]atomic.Pointer[worldPod], addresses),
		fenced: make([]atomic.Int64, addresses),
	}
}

func worldAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }

// worldID spreads the claims of an address over two sandboxes.
func worldID(addr int, claim int64) string {
	return "s" + strconv.Itoa(addr) + "-" + strconv.FormatInt(claim%2, 10)
}

// write is a pod write: the truth changes at once, the view some time later.
func (w *world) write(addr int, claim int64, running bool) uint64 {
	w.api.Lock()
	defer w.api.Unlock()
	w.rv++
	pod := &worldPod{claim: claim, rv: w.rv, running: running}
	w.truth[addr].Store(pod)
	w.events <- func() {
		w.view[addr].Store(pod)
		w.cache.PodsSeen(pod.rv)
	}
	return w.rv
}

// run lets each address serve that many claims, one after another, under handlers.
func (w *world) run(t *testing.T, claims int64) {
	ctx, stop := context.WithCancel(t.Context())
	var watch, owners, handlers sync.WaitGroup
	watch.Go(func() {
		for event := range w.events {
			dawdle(20)
			event()
		}
	})
	for range 4 {
		handlers.Go(func() {
			for ctx.Err() == nil {
				addr := rand.IntN(len(w.truth))
				w.handle(addr, worldID(addr, rand.Int64N(2)))
			}
		})
	}
	for addr := range w.truth {
		owners.Go(func() {
			for claim := int64(1); claim <= claims; claim++ {
				w.write(addr, claim, true)
				dawdle(20)
				rv := w.write(addr, claim, false)
				if err := w.fence(ctx, Fence{Addr: worldAddr(addr), RV: rv}); err != nil {
					t.Error(err)
					return
				}
				w.fenced[addr].Store(claim)
			}
		})
	}
	owners.Wait()
	stop()
	handlers.Wait()
	close(w.events)
	watch.Wait()
}

// handle is one request: answer from a Get in flight, else resolve.
func (w *world) handle(addr int, id string) {
	flight := w.cache.Enter()
	r := w.cache.Get(id)
	if r != nil {
		dawdle(5)
		claim, _ := strconv.ParseInt(r.ClaimID, 10, 64)
		if w.fenced[addr].Load() >= claim {
			w.wrong.Add(1)
		}
		w.answers.Add(1)
		flight.Leave()
		return
	}
	flight.Leave()
	token := w.cache.Begin(id)
	pod := w.view[addr].Load()
	if rand.IntN(2) == 0 {
		pod = w.truth[addr].Load()
	}
	dawdle(60)
	if pod != nil && pod.running && worldID(addr, pod.claim) == id {
		w.put(token, &Route{SandboxID: id, ClaimID: strconv.FormatInt(pod.claim, 10),
			Addr: worldAddr(addr), PodRV: pod.rv, Use: new(ClaimUse)})
	}
}

func dawdle(most int) {
	for range rand.IntN(most) {
		runtime.Gosched()
	}
}

// No handler that took a route before Fence answers after Fence has returned
// nil, and none takes it later.
func TestFenceUnderLoad(t *testing.T) {
	w := newWorld(6)
	w.run(t, 1500)
	if n := w.wrong.Load(); n != 0 {
		t.Errorf("%d of %d answers named a pod whose claim was fenced", n, w.answers.Load())
	}
	if w.answers.Load() < 1000 {
		t.Errorf("only %d answers: the test tests nothing", w.answers.Load())
	}
	if n := w.cache.flights.inFlight(); n != 0 {
		t.Errorf("%d handlers left in flight", n)
	}
}

// The test above must be able to fail: each step of a fence, left out, shows.
func TestBrokenFencesAreCaught(t *testing.T) {
	for name, sabotage := range map[string]func(*world){
		"does not wait for handlers in flight": func(w *world) {
			w.fence = func(_ context.Context, f Fence) error {
				one := newFences([]Fence{f}, w.cache.seed)
				w.cache.refusals.add(one.byAddr)
				dropOlder(w.cache, one)
				return nil
			}
		},
		"does not refuse": func(w *world) {
			w.fence = func(ctx context.Context, f Fence) error {
				dropOlder(w.cache, newFences([]Fence{f}, w.cache.seed))
				return w.cache.WaitFlights(ctx)
			}
		},
		"does not drop": func(w *world) {
			w.fence = func(ctx context.Context, f Fence) error {
				w.cache.refusals.add(map[netip.Addr]uint64{f.Addr: f.RV})
				return w.cache.WaitFlights(ctx)
			}
		},
		"forgets lifted refusals": func(w *world) {
			w.put = func(t Token, r *Route) bool {
				t.lifts = 1 << 62
				return w.cache.Put(t, r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				w := newWorld(6)
				sabotage(w)
				w.run(t, 300)
				if w.wrong.Load() > 0 {
					return
				}
			}
			t.Error("not noticed in 20 runs")
		})
	}
}

func dropOlder(c *Cache, f *fences) {
	for i := range c.shards {
		c.shards[i].dropOlder(f)
	}
}
