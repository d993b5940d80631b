package activation

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts activations.
type Metrics struct {
	seconds *prometheus.HistogramVec
	parked  prometheus.Gauge
	joined  prometheus.Counter
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "seconds",
			Help:    "Time that requests waited for an activation, by outcome.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"outcome"}),
		parked: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "parked_requests",
			Help: "Requests that wait for an activation.",
		}),
		joined: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "joined_total",
			Help: "Requests that found their activation under way.",
		}),
	}
}

func (m *Metrics) activated(err error, took time.Duration) {
	m.seconds.WithLabelValues(outcomeOf(err)).Observe(took.Seconds())
}

// outcomeOf is the metric label of how an activation went.
func outcomeOf(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, "success"},
		{ErrNoCapacity, "no_capacity"},
		{ErrParkingFull, "parking_full"},
		{ErrEnded, "ended"},
		{ErrOtherTenant, "other_tenant"},
		{ErrExists, "exists"},
		{ErrPoolNotFound, "pool_not_found"},
		{ErrNotReady, "not_ready"},
		{ErrUnusable, "unusable"},
		{ErrShutdown, "shutdown"},
		{ErrUnavailable, "unavailable"},
		{ErrForbidden, "forbidden"},
		{ErrInvalid, "invalid"},
		{context.Canceled, "left"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "error"
}
