package controlplane

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	metricsNamespace = "sandlane"
	metricsSubsystem = "controlplane"
)

// MembershipMetrics are a gateway's metrics of its lease.
type MembershipMetrics struct {
	renewals, failures, losses prometheus.Counter
	member                     atomic.Pointer[Membership]
}

// NewMembershipMetrics registers a gateway's metrics; nil registers none.
func NewMembershipMetrics(reg prometheus.Registerer) *MembershipMetrics {
	m := &MembershipMetrics{
		renewals: counter("lease_renewals_total", "Renewals of this gateway's lease that the API server confirmed."),
		failures: counter("lease_failures_total", "Writes of this gateway's lease that failed or stayed unanswered."),
		losses:   counter("lease_losses_total", "Times this gateway lost its lease and dropped all routes."),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "lease_held",
		Help: "1 while this gateway may route, 0 otherwise.",
	}, func() float64 {
		if g := m.member.Load(); g != nil && g.Held() {
			return 1
		}
		return 0
	})
	register(reg, m.renewals, m.failures, m.losses, held)
	return m
}

func (m *MembershipMetrics) serve(g *Membership) { m.member.Store(g) }

// ControllerMetrics are a controller's metrics of its gateways.
type ControllerMetrics struct {
	rounds, unanswered, revoked, lost prometheus.Counter
	demandUnanswered                  prometheus.Counter
	latency                           prometheus.Histogram
	gateways, expired                 prometheus.Gauge
}

// NewControllerMetrics registers a controller's metrics; nil registers none.
func NewControllerMetrics(reg prometheus.Registerer) *ControllerMetrics {
	m := &ControllerMetrics{
		rounds:           counter("fence_rounds_total", "Rounds in which gateways were asked to acknowledge fences."),
		unanswered:       counter("gateway_calls_unanswered_total", "Calls that a gateway did not answer, or not as the holder of its lease."),
		revoked:          counter("lease_revocations_total", "Lease holders overwritten because the gateway did not acknowledge a fence."),
		lost:             counter("gateways_lost_total", "Gateways that stopped or were replaced and had not handed over what they knew of use: idle time counts anew."),
		demandUnanswered: counter("demand_calls_unanswered_total", "Polls of what waits for pods that a gateway did not answer: no pool shrinks until that gateway answers one, or its lease is over."),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "fence_seconds",
			Help:    "Time from the first request for a fence until every gateway had acknowledged it or lost its lease.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
		}),
		gateways: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "gateways",
			Help: "Gateways that must acknowledge a fence now.",
		}),
		expired: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "gateways_expired",
			Help: "Gateways whose lease is over and whose pod is not. Nothing is released for idleness while one of them does not answer.",
		}),
	}
	register(reg, m.rounds, m.unanswered, m.demandUnanswered, m.revoked, m.lost, m.latency, m.gateways, m.expired)
	return m
}

func (m *ControllerMetrics) fenced(took time.Duration) { m.latency.Observe(took.Seconds()) }

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, Help: help,
	})
}

func register(reg prometheus.Registerer, cs ...prometheus.Collector) {
	if reg != nil {
		reg.MustRegister(cs...)
	}
}
