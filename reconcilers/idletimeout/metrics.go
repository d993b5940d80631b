package idletimeout

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Metrics of the checks. A nil *Metrics counts nothing.
type Metrics struct {
	releases *prometheus.CounterVec
	off      prometheus.Counter
	failures prometheus.Counter
	seconds  prometheus.Histogram
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		releases: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "idletimeout", Name: "released_total",
			Help: "Sandboxes ended by their idle or startup timeout, by reason.",
		}, []string{"reason"}),
		off: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "idletimeout", Name: "called_off_total",
			Help: "Idle releases that were begun and called off: the sandbox was in use after all, or a gateway could not tell.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "idletimeout", Name: "failed_checks_total",
			Help: "Checks in which releasing idle sandboxes failed, for some or all of them, such as when a gateway did not answer.",
		}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "idletimeout", Name: "check_seconds",
			Help:    "Time of one check, the gateways' answers included.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5},
		}),
	}
	for _, reason := range []v1alpha1.EndReason{v1alpha1.EndIdleTimeout, v1alpha1.EndStartupTimeout} {
		m.releases.WithLabelValues(string(reason))
	}
	return m
}

func (m *Metrics) released(reason v1alpha1.EndReason) {
	if m != nil {
		m.releases.WithLabelValues(string(reason)).Inc()
	}
}

func (m *Metrics) calledOff() {
	if m != nil {
		m.off.Inc()
	}
}

func (m *Metrics) failed() {
	if m != nil {
		m.failures.Inc()
	}
}

func (m *Metrics) checked(took time.Duration) {
	if m != nil {
		m.seconds.Observe(took.Seconds())
	}
}
