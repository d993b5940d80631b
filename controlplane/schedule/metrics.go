package schedule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts what schedulers do; several may share one.
type Metrics struct {
	queue, waitingSize, reservations *prometheus.GaugeVec
	claims                           *prometheus.CounterVec
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
			"Tries to claim one pod, by outcome.")), []string{"outcome"}),
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

func (m *Metrics) outcome(o string) { m.claims.WithLabelValues(o).Inc() }

// sizes sets a pool's gauges.
func (m *Metrics) sizes(namespace, pool string, ready, waiting, reserved int) {
	m.queue.WithLabelValues(namespace, pool).Set(float64(ready))
	m.waitingSize.WithLabelValues(namespace, pool).Set(float64(waiting))
	m.reservations.WithLabelValues(namespace, pool).Set(float64(reserved))
}

// drop removes the gauges of a pool that is gone.
func (m *Metrics) drop(namespace, pool string) {
	for _, v := range []*prometheus.GaugeVec{m.queue, m.waitingSize, m.reservations} {
		v.DeleteLabelValues(namespace, pool)
	}
}
