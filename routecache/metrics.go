package routecache

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those that the cache writes itself; the others are read from it.
type metrics struct {
	fence prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{fence: prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "sandlane", Subsystem: "routecache", Name: "fence_seconds",
		Help:    "Time from a batch of fences to its acknowledgement.",
		Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10},
	})}
}

// RegisterMetrics registers the cache's metrics. An error means that reg has
// metrics of these names already.
func (c *Cache) RegisterMetrics(reg prometheus.Registerer) error {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "routecache", Name: name, Help: help}, f)
	}
	counter := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "routecache", Name: name, Help: help}, f)
	}
	for _, m := range []prometheus.Collector{
		c.metrics.fence,
		gauge("entries", "Routes in the cache.", func() float64 { return float64(c.Len()) }),
		gauge("refused_addresses", "Fenced addresses whose fence this gateway's pod watch has not passed yet.",
			func() float64 { return float64(c.refusals.count()) }),
		gauge("handlers_in_flight", "Handlers between taking a route and having sent their answer.",
			func() float64 { return float64(c.flights.inFlight()) }),
		counter("evictions_total", "Routes evicted for lack of room.",
			func() float64 { return float64(c.Evictions()) }),
		counter("puts_refused_total", "Routes not cached because the sandbox ended meanwhile or its address was fenced.",
			func() float64 { return float64(c.refused.Load()) }),
	} {
		if err := reg.Register(m); err != nil {
			return fmt.Errorf("registering route cache metrics: %w", err)
		}
	}
	return nil
}
