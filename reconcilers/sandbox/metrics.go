package sandbox

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Metrics of all sandboxes together. A nil *Metrics counts nothing.
type Metrics struct {
	ends   *prometheus.CounterVec
	fences *prometheus.HistogramVec
	strays prometheus.Counter
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		ends: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "sandbox", Name: "ended_total",
			Help: "Ends carried out, by reason.",
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
	}
}

func (m *Metrics) ended(reason v1alpha1.EndReason) {
	if m != nil {
		m.ends.WithLabelValues(string(reason)).Inc()
	}
}

func (m *Metrics) fenced(took time.Duration, err error) {
	if m == nil {
		return
	}
	outcome := "acknowledged"
	if err != nil {
		outcome = "unanswered"
	}
	m.fences.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *Metrics) swept() {
	if m != nil {
		m.strays.Inc()
	}
}
