package activation

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The phases of an activation; the label "phase".
const (
	phaseQueue  = "queue"
	phaseCreate = "create"
	phasePatch  = "patch"
	phaseReady  = "ready"
	phaseInit   = "init"
)

const outcomeSuccess = "success"

// Metrics counts activations.
type Metrics struct {
	seconds *prometheus.HistogramVec
	phases  *prometheus.HistogramVec
	parked  prometheus.Gauge
	joined  prometheus.Counter
	ranks   *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	buckets := []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &Metrics{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "seconds",
			Help: "Time that requests waited for an activation, by outcome.", Buckets: buckets,
		}, []string{"outcome"}),
		phases: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "phase_seconds",
			Help: "Time of the phases of activations by this gateway: queue (until there is a pod), create (the binding is written), " +
				"patch (the claim is on the pod), ready (its images and hooks start), init (sandboxd takes its settings).",
			Buckets: buckets,
		}, []string{"phase"}),
		parked: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "parked_requests",
			Help: "Requests that wait for an activation.",
		}),
		joined: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "joined_total",
			Help: "Requests that found their activation under way.",
		}),
		ranks: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "activation", Name: "env_claims_total",
			Help: "Claims for sandboxes of envs, by the place among the env's members, in the order of their priority, of the one that gave the pod: " +
				"1, 2, 3, later, or none of them any more.",
		}, []string{"rank"}),
	}
	for _, rank := range ranks {
		m.ranks.WithLabelValues(rank)
	}
	for _, phase := range []string{phaseQueue, phaseCreate, phasePatch, phaseReady, phaseInit} {
		m.phases.WithLabelValues(phase)
	}
	m.seconds.WithLabelValues(outcomeSuccess)
	return m
}

// ranks are the values of the label "rank", from that of a pool which is no member.
var ranks = [...]string{"none", "1", "2", "3", "later"}

// ranked notes that the member of that rank (rankOf) gave a pod.
func (m *Metrics) ranked(rank int) {
	m.ranks.WithLabelValues(ranks[min(rank, len(ranks)-1)]).Inc()
}

// phase notes how long a phase took that succeeded.
func (m *Metrics) phase(name string, took time.Duration) {
	m.phases.WithLabelValues(name).Observe(took.Seconds())
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
		{nil, outcomeSuccess},
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
