package inuse

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	polls, failures prometheus.Counter
	open            prometheus.Gauge
}

func newMetrics() *metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "sandlane", Subsystem: "activity", Name: name, Help: help}
	}
	return &metrics{
		polls:    prometheus.NewCounter(prometheus.CounterOpts(opts("polls_total", "Successful reads of Envoy's open requests: at each tick, before idle releases and at the stop."))),
		failures: prometheus.NewCounter(prometheus.CounterOpts(opts("poll_failures_total", "Failed reads of Envoy's open requests: after one, every sandbox counts as in use."))),
		open:     prometheus.NewGauge(prometheus.GaugeOpts(opts("open_addresses", "Sandbox addresses with open requests at the last successful read."))),
	}
}

// RegisterMetrics registers the poller's metrics and those of its registry. An
// error means that reg has metrics of these names already.
func (p *EnvoyPoller) RegisterMetrics(reg prometheus.Registerer) error {
	gauge := func(name, help string, f func(*Registry) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "activity", Name: name, Help: help}, func() float64 {
			r := p.o.Registry
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(f(r))
		})
	}
	for _, c := range []prometheus.Collector{p.metrics.polls, p.metrics.failures, p.metrics.open,
		gauge("noted_claims", "Claims with a noted use.", func(r *Registry) int { return len(r.all) }),
		gauge("parked_sandboxes", "Sandboxes with a parked request.", func(r *Registry) int { return len(r.parked) }),
	} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering activity metrics: %w", err)
		}
	}
	return nil
}
