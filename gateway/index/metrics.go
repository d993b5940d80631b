package index

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandlane/sandlane/routing"
)

type metrics struct {
	events, lists *prometheus.CounterVec
}

// The kinds that are watched; the label "kind".
const (
	kindPods      = "pods"
	kindSandboxes = "sandboxes"
	kindPools     = "pools"
	kindTemplates = "templates"
	kindEnvs      = "envs"
)

func newMetrics() *metrics {
	m := &metrics{
		events: counters("events_total", "Watch events applied, by kind.", "kind"),
		lists:  counters("lists_total", "Complete lists applied, by kind.", "kind"),
	}
	for _, kind := range []string{kindPods, kindSandboxes, kindPools, kindTemplates, kindEnvs} {
		m.events.WithLabelValues(kind)
		m.lists.WithLabelValues(kind)
	}
	return m
}

// How a live read went, besides what it found; the label "outcome".
const (
	readLimited = "limited"
	readFailed  = "error"
	readSandbox = "sandbox"
)

type liveMetrics struct{ reads *prometheus.CounterVec }

func newLiveMetrics() *liveMetrics {
	m := &liveMetrics{reads: counters("live_reads_total",
		"Live reads by what they found: a state; sandbox, if only the Sandbox was read; limited, if nothing was read; error, without an answer.", "outcome")}
	for _, outcome := range append([]string{readLimited, readFailed, readSandbox}, routing.StateNames()...) {
		m.reads.WithLabelValues(outcome)
	}
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "sandlane", Subsystem: "index", Name: name, Help: help}, labels)
}

// RegisterMetrics registers the index's metrics. An error means that reg has
// metrics of these names already.
func (x *Index) RegisterMetrics(reg prometheus.Registerer) error {
	gauge := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "index", Name: name, Help: help},
			func() float64 {
				x.mu.RLock()
				defer x.mu.RUnlock()
				return float64(f())
			})
	}
	return register(reg, x.metrics.events, x.metrics.lists,
		gauge("pods", "Pool pods known.", func() int { return len(x.pods) }),
		gauge("sandboxes", "Sandboxes known, ended ones included.", func() int { return len(x.sandboxes) }),
		gauge("pools", "Pools known.", func() int { return len(x.pools) }))
}

// RegisterMetrics registers the live reads' metrics. An error means that reg has
// metrics of these names already.
func (l *Live) RegisterMetrics(reg prometheus.Registerer) error {
	return register(reg, l.metrics.reads)
}

func register(reg prometheus.Registerer, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering index metrics: %w", err)
		}
	}
	return nil
}
