package fastpath

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the metric label "result": how Envoy's module treated a request.
const (
	resultHit       = "hit"       // the module answered it
	resultUnfit     = "unfit"     // not of a kind that the module answers
	resultAbsent    = "absent"    // no route in the table
	resultUntrusted = "untrusted" // no lease, no heartbeat, or an Envoy that was not tested
	resultGone      = "gone"      // 503: the route, or trust, was lost while the request waited in Envoy
)

// results are in the order of a worker slot's counters.
var results = [...]string{resultHit, resultUnfit, resultAbsent, resultUntrusted, resultGone}

// maxPerBeat is how much a counter may grow between two heartbeats. A counter that grew more
// was overwritten.
const maxPerBeat = 10_000_000

type metrics struct {
	requests *prometheus.CounterVec
	wait     prometheus.Histogram
	// last are the workers' counters at the last heartbeat. Only the heartbeat uses them.
	last [workers][len(results)]uint64
}

func newMetrics() *metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "sandlane", Subsystem: "fastpath", Name: name, Help: help}
	}
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts(opts("requests_total",
			"Requests that Envoy's module looked at: answered (hit), refused because the route was lost meanwhile (gone), or left to ExtProc or the REST API, by reason.")), []string{"result"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "fastpath", Name: "wait_seconds",
			Help:    "Time that a fence, a hold or a lost lease waited for Envoy's workers.",
			Buckets: []float64{1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10},
		}),
	}
}

// noteCounters notes the workers' counters when this process starts, so that requests which
// an earlier process has counted are not counted again.
func (t *Table) noteCounters() {
	for w := range workers {
		for i := range results {
			t.metrics.last[w][i] = t.counter(w, i)
		}
	}
}

func (t *Table) counter(worker, i int) uint64 {
	return t.control.load(offWorkers + worker*workerSize + 8 + 8*i)
}

// Answered returns how many requests Envoy has answered from the table since the control file
// was made. It is current, and costs a read of 64 words. Safe for concurrent use.
func (t *Table) Answered() (n uint64) {
	for w := range workers {
		n += t.counter(w, 0) // resultHit
	}
	return n
}

// countResults adds to the metrics what the workers have counted since the last heartbeat. A
// counter that went back, or grew by more than maxPerBeat, was overwritten and is ignored.
func (t *Table) countResults() {
	for i, result := range results {
		var sum uint64
		for w := range workers {
			now := t.counter(w, i)
			if grown := now - t.metrics.last[w][i]; grown <= maxPerBeat {
				sum += grown
			}
			t.metrics.last[w][i] = now
		}
		t.metrics.requests.WithLabelValues(result).Add(float64(sum))
		if result == resultHit && sum > 0 && t.o.Hits != nil {
			t.o.Hits(sum)
		}
	}
}

// RegisterMetrics registers the table's metrics. An error means that reg has metrics
// of these names already.
func (t *Table) RegisterMetrics(reg prometheus.Registerer) error {
	locked := func(f func() float64) func() float64 {
		return func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return f()
		}
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "sandlane", Subsystem: "fastpath", Name: name, Help: help}, f)
	}
	counter := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "sandlane", Subsystem: "fastpath", Name: name, Help: help}, f)
	}
	for _, m := range []prometheus.Collector{
		t.metrics.requests, t.metrics.wait,
		gauge("trusted", "1 while Envoy may answer from the table.", func() float64 {
			if t.control.load(offTrustBoot) > nanosNow() {
				return 1
			}
			return 0
		}),
		gauge("entries", "Routes in the table.", locked(func() float64 { return float64(len(t.records) - len(t.free) - len(t.retired)) })),
		gauge("retired", "Routes taken out that a worker of Envoy may still read.", locked(func() float64 { return float64(len(t.retired)) })),
		counter("full_buckets_total", "Times that a route was left to ExtProc because its bucket was full.", locked(func() float64 { return float64(t.fullBucket) })),
		counter("no_entry_total", "Times that a route was left to ExtProc because no entry was free.", locked(func() float64 { return float64(t.noEntry) })),
	} {
		if err := reg.Register(m); err != nil {
			return fmt.Errorf("registering the fast path's metrics: %w", err)
		}
	}
	return nil
}
