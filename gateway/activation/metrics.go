package activation

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/routing"
)

// The values of the metric label "phase": the phases of an activation.
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
			Help: "Claims for sandboxes of envs, by the rank (in the order of priority) of the env's member that gave the pod: " +
				"1, 2, 3, later, or none if the pool is no member any more.",
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

// ranks are the values of the label "rank", in the order of what rankOf returns.
var ranks = [...]string{"none", "1", "2", "3", "later"}

// countRank counts a pod that the member with that rank (rankOf) gave.
func (m *Metrics) countRank(rank int) {
	m.ranks.WithLabelValues(ranks[min(rank, len(ranks)-1)]).Inc()
}

// observePhase notes how long a phase took that succeeded.
func (m *Metrics) observePhase(name string, took time.Duration) {
	m.phases.WithLabelValues(name).Observe(took.Seconds())
}

func (m *Metrics) observe(err error, took time.Duration) {
	m.seconds.WithLabelValues(outcomeOf(err)).Observe(took.Seconds())
}

// outcomeOf returns the metric label of an activation that ended with err.
func outcomeOf(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, outcomeSuccess},
		{routing.ErrNoCapacity, "no_capacity"},
		{routing.ErrNoMember, "no_member"},
		{routing.ErrEnded, "ended"},
		{ErrOtherTenant, "other_tenant"},
		{routing.ErrExists, "exists"},
		{routing.ErrPoolNotFound, "pool_not_found"},
		{ErrNotReady, "not_ready"},
		{routing.ErrNotRestorable, "not_restorable"},
		{routing.ErrUnusable, "unusable"},
		{routing.ErrDraining, "shutdown"},
		{routing.ErrUnavailable, "unavailable"},
		{routing.ErrSandboxLimit, "quota"},
		{routing.ErrNotPermitted, "forbidden"},
		{routing.ErrInvalid, "invalid"},
		{context.Canceled, "left"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "error"
}
