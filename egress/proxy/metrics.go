package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
)

// What became of a connection, a question or a request. A record has that of the last request
// that was refused, if one was.
const (
	verdictPassed      = "passed"
	verdictIntercepted = "intercepted"
	verdictHere        = "here"    // answered with this process's address
	verdictDenied      = "denied"  // by the sandbox's policy
	verdictClosed      = "closed"  // no address that sandboxes may reach
	verdictUnknown     = "unknown" // no claim
	verdictUnread      = "unread"  // it names no host, or has no single reading
	verdictMany        = "many"    // too many of one address are open
	verdictFailed      = "failed"  // upstream, or a secret
)

// Metrics count what sandboxes ask for.
type Metrics struct {
	connections, questions, requests, bytes *prometheus.CounterVec
	lost                                    prometheus.Counter
}

// NewMetrics returns metrics in a registry; nil registers them nowhere. held reports whether
// this process holds its lease.
func NewMetrics(registry prometheus.Registerer, held func() bool) *Metrics {
	options := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "sandlane", Subsystem: "egress", Name: name, Help: help}
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(options(name, help), []string{"verdict"})
	}
	m := &Metrics{
		connections: counter("connections_total", "Connections of sandboxes, by what became of them."),
		questions:   counter("questions_total", "Sandboxes' questions for names, by how they were answered."),
		requests:    counter("requests_total", "Requests to port 80, and to hosts with rules, by what became of them."),
		bytes:       prometheus.NewCounterVec(options("bytes_total", "Bytes of connections that have ended, to hosts (sent) and from them (received)."), []string{"way"}),
		lost:        prometheus.NewCounter(options("records_lost_total", "Records of connections that were not written, since the log was not taken fast enough.")),
	}
	if registry != nil {
		lease := prometheus.GaugeOpts{Namespace: "sandlane", Subsystem: "egress", Name: "lease_held", Help: "1 while this process holds its lease; without it all is refused."}
		registry.MustRegister(prometheus.NewGaugeFunc(lease, func() float64 {
			if held() {
				return 1
			}
			return 0
		}), m.connections, m.questions, m.requests, m.bytes, m.lost)
	}
	return m
}

// RecordLost counts a record that was not written.
func (m *Metrics) RecordLost() { m.lost.Inc() }
