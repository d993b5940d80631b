package sandboxenv

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of the env reconciler. A nil *Metrics counts nothing.
type Metrics struct {
	writes *prometheus.CounterVec
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{writes: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Namespace: "sandlane", Subsystem: "sandboxenv", Name: "writes_total",
		Help: "Writes for envs by kind: create, update and delete of member pools, status, and refused ones.",
	}, []string{"kind"})}
	for _, kind := range []string{"create", "update", "delete", "status", "refused"} {
		m.writes.WithLabelValues(kind)
	}
	return m
}

func (m *Metrics) wrote(kind string) {
	if m != nil {
		m.writes.WithLabelValues(kind).Inc()
	}
}
