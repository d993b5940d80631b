package sandboxpool

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Metrics of pools and their pods. Series with the labels namespace and pool are of
// pools that exist: they are made when this process first sees the pool, with their
// counters at 0, and go with it. A nil *Metrics counts nothing. Safe for concurrent
// use.
type Metrics struct {
	deletes     *prometheus.CounterVec
	transitions *prometheus.CounterVec
	conflicts   prometheus.Counter
	vecs        poolVecs

	mu    sync.Mutex // guards pools
	pools map[types.NamespacedName]*poolMetrics
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "sandlane", Subsystem: "sandboxpool", Name: name, Help: help}
	}
	m := &Metrics{
		deletes:     f.NewCounterVec(opts("pod_deletes_total", "Pods deleted, by reason."), []string{"reason"}),
		transitions: f.NewCounterVec(opts("pod_transitions_total", "Changes of a pod's phase that this controller wrote, by the new phase."), []string{"to"}),
		conflicts:   f.NewCounter(opts("refused_writes_total", "Conditional writes that the API server refused because the pod had changed since it was read.")),
		vecs:        newPoolVecs(f),
		pools:       map[types.NamespacedName]*poolMetrics{},
	}
	for _, phase := range phases {
		m.transitions.WithLabelValues(string(phase))
	}
	for _, reason := range deleteReasons {
		m.deletes.WithLabelValues(reason)
	}
	return m
}

func (m *Metrics) deleted(reason string) {
	if m != nil {
		m.deletes.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) transition(to v1alpha1.PodPhase) {
	if m != nil && to != "" {
		m.transitions.WithLabelValues(string(to)).Inc()
	}
}

func (m *Metrics) refused() {
	if m != nil {
		m.conflicts.Inc()
	}
}
