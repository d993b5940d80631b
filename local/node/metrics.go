package node

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the node. Safe for concurrent use.
type Metrics struct {
	starts   prometheus.Counter
	failures prometheus.Counter
	deletes  prometheus.Counter
}

// NewMetrics makes the node's metrics and registers them; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "sandlane", Subsystem: "node", Name: name, Help: help})
	}
	m := &Metrics{
		starts:   counter("container_starts_total", "Container processes started."),
		failures: counter("container_start_failures_total", "Container processes that could not be started."),
		deletes:  counter("pods_deleted_total", "Pod objects deleted after their processes were dead."),
	}
	if reg != nil {
		reg.MustRegister(m.starts, m.failures, m.deletes)
	}
	return m
}
