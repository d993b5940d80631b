package fastpath

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/cmodule"
)

// A hit in Envoy counts as use of the sandbox. A fold and the removal of the route note the
// use, never with a time before the hit.
func TestUseIsNoted(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	for name, fold := range map[string]func(*routecache.Route){
		"fold":     func(*routecache.Route) { w.table.Fold() },
		"removal":  func(r *routecache.Route) { w.cache.Drop(r); _ = w.table.Wait(t.Context()) },
		"withdraw": func(r *routecache.Route) { w.cache.Retract(r.SandboxID); _ = w.table.Wait(t.Context()) },
	} {
		r := w.put(t, route(generatedID, "10.0.0.5"))
		w.table.Fold()
		if r.Use.Load() != 0 {
			t.Fatalf("%s: used before it was", name)
		}
		before := time.Now().UnixNano()
		if envoy.Ask(t, request(generatedID, "80")...) == nil {
			t.Fatalf("%s: no answer", name)
		}
		fold(r)
		if r.Use.Load() < before {
			t.Errorf("%s: the use was not noted", name)
		}
		w.cache.DropAll()
	}
}

// If the reading of a hit is not over when its route is removed, the wait notes the use.
func TestUseOfALateReadingIsNoted(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "stall")
	r := w.put(t, route(generatedID, "10.0.0.5"))
	envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
	envoy.Byte(t)
	w.cache.Retract(generatedID)
	envoy.Send(t, []byte{'g'})
	if err := w.table.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.Use.Load() == 0 {
		t.Error("the use was forgotten with the entry")
	}
}

// A hit whose worker stalls is use until its reading is over, also where the mark of an
// earlier hit was folded meanwhile.
func TestUseIsMarkedAtTheEndOfAReading(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "stall")
	r := w.put(t, route(generatedID, "10.0.0.5"))
	hit := func(meanwhile func()) {
		envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
		envoy.Byte(t)
		meanwhile()
		envoy.Send(t, []byte{'g'})
		if err := w.table.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		envoy.Answer(t)
	}
	hit(func() {})
	var folded int64
	hit(func() {
		w.table.Fold()
		folded = r.Use.Load()
	})
	if folded == 0 {
		t.Fatal("the first hit was not noted")
	}
	w.table.Fold()
	if r.Use.Load() == folded {
		t.Error("the use at the end of the reading was not noted")
	}
}

// A route that has hits in Envoy alone is not evicted while there are routes without hits.
func TestEvictionSparesWhatIsUsed(t *testing.T) {
	w := newWorld(t, 64)
	envoy := w.envoy(t, "run")
	w.put(t, route("busy", "10.0.0.5"))
	for i := range 2000 {
		if i%3 == 0 && envoy.Ask(t, request("busy", "80")...) == nil {
			t.Fatalf("evicted after %d others", i)
		}
		w.put(t, route(fmt.Sprint("idle-", i), "10.0.0.6"))
		if i%40 == 0 {
			w.table.beat(t.Context())
		}
	}
}

// Requests are counted by their result. Requests before this process started are not
// counted, and neither is a counter that was overwritten.
func TestCounts(t *testing.T) {
	w := newWorld(t, 100)
	var hits uint64
	w.table.o.Hits = func(n uint64) { hits += n }
	reg := prometheus.NewPedanticRegistry()
	if err := w.table.RegisterMetrics(reg); err != nil {
		t.Fatal(err)
	}
	envoy := w.envoy(t, "run")
	w.put(t, route(generatedID, "10.0.0.5"))
	for range 3 {
		envoy.Ask(t, request(generatedID, "80")...)
	}
	envoy.Ask(t, request("Not-An-ID", "80")...)
	envoy.Ask(t, request("unknown", "80")...)
	w.table.countResults()
	w.table.control.store(offWorkers+8, 1<<63)
	w.table.countResults()
	w.table.control.store(offWorkers+8, 3)
	w.table.countResults()
	want := map[string]float64{resultHit: 3, resultUnfit: 1, resultAbsent: 1, resultUntrusted: 1}
	for result, n := range want {
		if got := testutil.ToFloat64(w.table.metrics.requests.WithLabelValues(result)); got != n {
			t.Errorf("%s: %v, want %v", result, got, n)
		}
	}
	if hits != 3 {
		t.Errorf("%d hits were reported, want 3", hits)
	}
	if _, err := reg.Gather(); err != nil {
		t.Error(err)
	}
}
