package extproc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a request was rejected; the label "reason".
const (
	reasonBadTarget        = "bad_target"
	reasonNoTarget         = "no_target"
	reasonControlPath      = "control_path"
	reasonNotFound         = "not_found"
	reasonPoolNotFound     = "pool_not_found"
	reasonForbidden        = "forbidden"
	reasonBadKey           = "bad_key"
	reasonTrafficToken     = "traffic_token"
	reasonEnvdToken        = "envd_token"
	reasonTransitioning    = "transitioning"
	reasonSandboxLimit     = "sandbox_limit"
	reasonOpenLimit        = "open_limit"
	reasonNamespaceOpen    = "namespace_open"
	reasonNamespaceParking = "namespace_parking"
	reasonKeylessParking   = "keyless_parking"
	reasonNameParking      = "name_parking"
	reasonInvalid          = "invalid"
	reasonNotPermitted     = "not_permitted"
	reasonNotRestorable    = "not_restorable"
	reasonNoCapacity       = "no_capacity"
	reasonLimited          = "limited"
	reasonParkingFull      = "parking_full"
	reasonDraining         = "draining"
	reasonDeadline         = "deadline"
	reasonUnsettled        = "unsettled"
	reasonNoLease          = "no_lease"
	reasonInternal         = "internal"
)

// How a request was answered; the label "outcome".
const (
	outcomeHit      = "hit"      // route from the cache
	outcomeResolved = "resolved" // route from the index or a live read
	outcomeClaimed  = "claimed"  // this request asked for the pod
	outcomeParked   = "parked"   // waited for an activation under way
	outcomeResumed  = "resumed"  // this request resumed a paused sandbox, or waited for that
	outcomeHeld     = "held"     // waited for an idle release, which was called off
	outcomeRejected = "rejected" // an answer of our own, see the reason
	outcomeCanceled = "canceled" // the client left first
	outcomeFailed   = "failed"   // no answer: broken message, broken stream or panic
)

// reasons are all of them.
var reasons = []string{
	reasonBadTarget, reasonNoTarget, reasonControlPath, reasonNotFound, reasonPoolNotFound, reasonForbidden, reasonBadKey,
	reasonTrafficToken, reasonEnvdToken, reasonTransitioning, reasonSandboxLimit, reasonOpenLimit, reasonNamespaceOpen,
	reasonNamespaceParking, reasonKeylessParking, reasonNameParking, reasonInvalid, reasonNotPermitted,
	reasonNotRestorable, reasonNoCapacity, reasonLimited, reasonParkingFull, reasonDraining, reasonDeadline, reasonUnsettled, reasonNoLease, reasonInternal,
}

// Where a route that was not cached came from, and whether an activation got a pod;
// the labels "source" and "result".
const (
	sourceIndex = "index"
	sourceLive  = "live"
	resultOK    = "ok"
	resultError = "error"
)

// Metrics are the server's metrics.
type Metrics struct {
	requests   *prometheus.CounterVec
	hits       prometheus.Counter // requests{outcome=hit}, looked up once
	resolve    *prometheus.HistogramVec
	activation *prometheus.HistogramVec
	inFlight   prometheus.Gauge
	parked     prometheus.Gauge
	panics     prometheus.Counter
	dropped    prometheus.Counter
}

// NewMetrics makes the server's metrics and registers them; reg may be nil. It
// panics if they are registered already, like prometheus.MustRegister.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	const namespace, subsystem = "sandlane", "extproc"
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total",
			Help: "Requests by outcome, and for rejected ones by reason.",
		}, []string{"outcome", "reason"}),
		resolve: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "resolve_seconds",
			Help:    "Time to find out where a sandbox lives on a cache miss, by source.",
			Buckets: []float64{1e-6, 1e-5, 1e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5},
		}, []string{"source"}),
		activation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "activation_seconds",
			Help:    "Time that a request waited for its sandbox's pod, by outcome (claimed, parked, resumed) and result (ok, error).",
			Buckets: []float64{1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"outcome", "result"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "in_flight",
			Help: "Requests being answered, parked ones included.",
		}),
		parked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "parked",
			Help: "Requests that wait for an activation.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "panics_total",
			Help: "Panics recovered while handling a request or an access log.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "upstream_failures_total",
			Help: "Upstream failures that Envoy reported for a sandbox.",
		}),
	}
	m.hits = m.requests.WithLabelValues(outcomeHit, "")
	for _, outcome := range []string{outcomeResolved, outcomeClaimed, outcomeParked, outcomeResumed, outcomeHeld, outcomeCanceled, outcomeFailed} {
		m.requests.WithLabelValues(outcome, "")
	}
	for _, reason := range reasons {
		m.requests.WithLabelValues(outcomeRejected, reason)
	}
	for _, source := range []string{sourceIndex, sourceLive} {
		m.resolve.WithLabelValues(source)
	}
	for _, outcome := range []string{outcomeClaimed, outcomeParked, outcomeResumed} {
		m.activation.WithLabelValues(outcome, resultOK)
		m.activation.WithLabelValues(outcome, resultError)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.resolve, m.activation, m.inFlight, m.parked, m.panics, m.dropped)
	}
	return m
}

func (m *Metrics) outcome(outcome string) {
	if outcome == outcomeHit {
		m.hits.Inc()
		return
	}
	m.requests.WithLabelValues(outcome, "").Inc()
}

// CountHits adds hits that Envoy answered without asking this server.
func (s *Server) CountHits(n uint64) { s.metrics.hits.Add(float64(n)) }

func (m *Metrics) rejected(reason string) {
	m.requests.WithLabelValues(outcomeRejected, reason).Inc()
}

func (m *Metrics) resolved(source string, since time.Time) {
	m.resolve.WithLabelValues(source).Observe(time.Since(since).Seconds())
}

func (m *Metrics) activated(outcome string, err error, since time.Time) {
	result := resultOK
	if err != nil {
		result = resultError
	}
	m.activation.WithLabelValues(outcome, result).Observe(time.Since(since).Seconds())
}
