package sandbox

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// The values of the metric label "outcome": how an attempt to reach all gateways ended.
const (
	fenceAcknowledged = "acknowledged"
	fenceUnanswered   = "unanswered"
)

// Metrics of all sandboxes together. A nil *Metrics counts nothing.
type Metrics struct {
	pools     *sandboxpool.Metrics
	lifetimes *prometheus.HistogramVec
	fences    *prometheus.HistogramVec
	strays    prometheus.Counter
	pauses    *prometheus.CounterVec
}

// NewMetrics registers the metrics; a nil registerer registers none. The ends are counted in
// pools, which knows the pools that exist.
func NewMetrics(reg prometheus.Registerer, pools *sandboxpool.Metrics) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		pools: pools,
		lifetimes: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "sandbox", Name: "lifetime_seconds",
			Help:    "Time from a sandbox's start to its end, paused time included, by reason of the end.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600},
		}, []string{"reason"}),
		fences: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "sandbox", Name: "fence_seconds",
			Help:    "Time of one attempt to have an address acknowledged by all gateways, by outcome.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"outcome"}),
		strays: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "sandbox", Name: "swept_total",
			Help: "Claims ended because no Sandbox owned them.",
		}),
		pauses: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "sandbox", Name: "pause_changes_total",
			Help: "Changes of sandboxes' condition Paused, by its new reason: Frozen, Hibernated, Resumed, or why a pause was not carried out.",
		}, []string{"reason"}),
	}
	for _, reason := range pauseReasons {
		m.pauses.WithLabelValues(reason)
	}
	for _, outcome := range []string{fenceAcknowledged, fenceUnanswered} {
		m.fences.WithLabelValues(outcome)
	}
	return m
}

// pauseReasons are the reasons of the condition Paused once a pause or resume is over, or
// late.
var pauseReasons = []string{
	v1alpha1.ReasonFrozen, v1alpha1.ReasonHibernated, v1alpha1.ReasonResumed,
	v1alpha1.ReasonNoFreezer, v1alpha1.ReasonFreezeFailed, v1alpha1.ReasonSaveFailed, v1alpha1.ReasonUnanswered,
}

// pauseChanged counts a change of the condition Paused to this reason.
func (m *Metrics) pauseChanged(reason string) {
	if m != nil && slices.Contains(pauseReasons, reason) {
		m.pauses.WithLabelValues(reason).Inc()
	}
}

// ended counts the end of a sandbox whose status says when it was, and how long the
// sandbox ran if it ever did.
func (m *Metrics) ended(s *v1alpha1.Sandbox) {
	if m == nil {
		return
	}
	reason := s.Spec.End.Reason
	m.pools.Ended(s.Spec.Namespace, s.Spec.Pool, reason)
	if from, to := s.Status.StartedAt, s.Status.EndedAt; from != nil && to != nil {
		m.lifetimes.WithLabelValues(string(reason)).Observe(max(to.Sub(from.Time), 0).Seconds())
	}
}

func (m *Metrics) fenced(took time.Duration, err error) {
	if m == nil {
		return
	}
	outcome := fenceAcknowledged
	if err != nil {
		outcome = fenceUnanswered
	}
	m.fences.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *Metrics) swept() {
	if m != nil {
		m.strays.Inc()
	}
}
