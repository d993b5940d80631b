package schedule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts what schedulers do; several may share one.
type Metrics struct {
	queue, waitingSize, reservations *prometheus.GaugeVec
	claims                           *prometheus.CounterVec // also by pool
	dispatch                         prometheus.Histogram
	expired, evicted                 prometheus.Counter
}

// The outcomes of one try to claim one pod. An ambiguous one is counted again
// when it has settled.
const (
	outcomeSuccess   = "success"
	outcomeConflict  = "conflict"
	outcomeAmbiguous = "ambiguous"
	outcomeError     = "error"
)

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "sandlane", Subsystem: "schedule", Name: name, Help: help}
	}
	pool := []string{"namespace", "pool"}
	return &Metrics{
		queue: f.NewGaugeVec(prometheus.GaugeOpts(opts("ready_pods",
			"Idle pods in the queue of this gateway's scheduler.")), pool),
		waitingSize: f.NewGaugeVec(prometheus.GaugeOpts(opts("waiting_requests",
			"Requests that wait for an idle pod.")), pool),
		reservations: f.NewGaugeVec(prometheus.GaugeOpts(opts("reservations",
			"Pods that are being claimed, or were and still look idle in the watch.")), pool),
		claims: f.NewCounterVec(prometheus.CounterOpts(opts("claims_total",
			"Tries to claim one pod, by pool and outcome.")), append(pool, "outcome")),
		dispatch: f.NewHistogram(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "schedule", Name: "dispatch_seconds",
			Help:    "Time from a request's arrival to its first pod.",
			Buckets: []float64{.00001, .0001, .001, .01, .1, .5, 1, 5, 10, 30, 60},
		}),
		expired: f.NewCounter(prometheus.CounterOpts(opts("reservations_expired_total",
			"Reservations that ended because the watch never showed the pod leave idle."))),
		evicted: f.NewCounter(prometheus.CounterOpts(opts("evicted_entries_total",
			"Pods that left the ready queue without a claim of this gateway."))),
	}
}

// outcomeOf is the outcome of an attempt that ended with err.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return outcomeSuccess
	case errors.Is(err, errUnsettled):
		return outcomeError
	case errors.Is(err, ErrPodTaken), errors.Is(err, ErrPodGone):
		return outcomeConflict
	}
	return outcomeError
}

// poolMetrics are the series of one scheduler's pool, and those that it shares. A
// scheduler makes them once and drops them once, so that one that ends late does not
// drop those of its successor for a pool of the same name; what it counts after that
// is not seen.
type poolMetrics struct {
	*Metrics
	namespace, pool          string
	ready, waiting, reserved prometheus.Gauge
	claims                   map[string]prometheus.Counter
}

// of makes a pool's series, with its counters at 0.
func (m *Metrics) of(namespace, pool string) *poolMetrics {
	p := &poolMetrics{
		Metrics: m, namespace: namespace, pool: pool,
		ready:    m.queue.WithLabelValues(namespace, pool),
		waiting:  m.waitingSize.WithLabelValues(namespace, pool),
		reserved: m.reservations.WithLabelValues(namespace, pool),
		claims:   map[string]prometheus.Counter{},
	}
	for _, outcome := range []string{outcomeSuccess, outcomeConflict, outcomeAmbiguous, outcomeError} {
		p.claims[outcome] = m.claims.WithLabelValues(namespace, pool, outcome)
	}
	return p
}

func (p *poolMetrics) outcome(o string) { p.claims[o].Inc() }

// sizes sets the pool's gauges.
func (p *poolMetrics) sizes(ready, waiting, reserved int) {
	p.ready.Set(float64(ready))
	p.waiting.Set(float64(waiting))
	p.reserved.Set(float64(reserved))
}

// drop removes the pool's series.
func (p *poolMetrics) drop() {
	labels := prometheus.Labels{"namespace": p.namespace, "pool": p.pool}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{p.queue, p.waitingSize, p.reservations, p.Metrics.claims} {
		v.DeletePartialMatch(labels)
	}
}
