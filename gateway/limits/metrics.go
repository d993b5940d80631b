package limits

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ looks prometheus.Counter }

const metricsNamespace, metricsSubsystem = "sandlane", "limits"

func newMetrics() *metrics {
	return &metrics{looks: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "looks_total",
		Help: "Looks at how many requests Envoy has open: one a second, and more while many are admitted.",
	})}
}

// RegisterMetrics registers the metrics of both. An error means that reg has metrics of these
// names already.
func RegisterMetrics(reg prometheus.Registerer, w *Waiting, x *OpenRequests) error {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	for _, c := range []prometheus.Collector{x.metrics.looks,
		gauge("waiting_requests", "Requests that wait for a pod, a resume, the end of a hold or a live read, creates of the REST API included.", w.Taken),
		gauge("open_requests", "Requests for sandboxes that count as open: Envoy's at the last look, and what was admitted since.", func() int { return int(x.total.Load()) }),
		gauge("namespaces_over", "Namespaces with so many open requests that Envoy answers none of theirs by itself.", x.over),
	} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of limits: %w", err)
		}
	}
	return nil
}

func (x *OpenRequests) over() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.namespaces {
		if c.over.Load() {
			n++
		}
	}
	return n
}
