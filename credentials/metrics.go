package credentials

import "github.com/prometheus/client_golang/prometheus"

const (
	outcomeValid     = "valid"
	outcomeMalformed = "malformed"
	outcomeUnknown   = "unknown"
	outcomeWrong     = "wrong"
	outcomeEnded     = "ended"
)

// Metrics counts what a Verifier answered. A nil *Metrics counts nothing.
type Metrics struct {
	verifications *prometheus.CounterVec
}

// NewMetrics registers the metrics of this package with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{verifications: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "sandlane",
		Subsystem: "credentials",
		Name:      "verifications_total",
		Help:      "API keys looked at, by outcome: valid, malformed, unknown (no key has this ID), wrong (its secret part differs), ended (its namespace is gone).",
	}, []string{"outcome"})}
	for _, outcome := range []string{outcomeValid, outcomeMalformed, outcomeUnknown, outcomeWrong, outcomeEnded} {
		m.verifications.WithLabelValues(outcome)
	}
	reg.MustRegister(m.verifications)
	return m
}

func (m *Metrics) verified(outcome string) {
	if m != nil {
		m.verifications.WithLabelValues(outcome).Inc()
	}
}
