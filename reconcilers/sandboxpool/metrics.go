package sandboxpool

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Metrics of all pools together. A nil *Metrics counts nothing.
type Metrics struct {
	creates     *prometheus.CounterVec
	deletes     *prometheus.CounterVec
	transitions *prometheus.CounterVec
	conflicts   prometheus.Counter
	pods        *prometheus.GaugeVec
}

// Values of the label "kind" of the gauge of a pool.
const (
	kindWanted  = "wanted"
	kindIdle    = "idle"
	kindWaiting = "waiting"
)

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "sandlane", Subsystem: "sandboxpool", Name: name, Help: help}
	}
	return &Metrics{
		creates:     f.NewCounterVec(opts("pod_creates_total", "Pods created, by outcome."), []string{"outcome"}),
		deletes:     f.NewCounterVec(opts("pod_deletes_total", "Pods deleted, by reason."), []string{"reason"}),
		transitions: f.NewCounterVec(opts("pod_transitions_total", "Phases that pods were moved to."), []string{"to"}),
		conflicts:   f.NewCounter(opts("refused_writes_total", "Conditional writes that came too late: the pod had moved on.")),
		pods: f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "sandboxpool", Name: "pods",
			Help: "Of each pool: unclaimed pods wanted, idle pods, and sandboxes that wait for a pod.",
		}, []string{"namespace", "pool", "kind"}),
	}
}

// sizes sets the gauges of a pool.
func (m *Metrics) sizes(pool types.NamespacedName, wanted, idle, waiting int) {
	if m == nil {
		return
	}
	for kind, n := range map[string]int{kindWanted: wanted, kindIdle: idle, kindWaiting: waiting} {
		m.pods.WithLabelValues(pool.Namespace, pool.Name, kind).Set(float64(n))
	}
}

// forget drops the gauges of a pool that is gone.
func (m *Metrics) forget(pool types.NamespacedName) {
	if m != nil {
		m.pods.DeletePartialMatch(prometheus.Labels{"namespace": pool.Namespace, "pool": pool.Name})
	}
}

func (m *Metrics) created() {
	if m != nil {
		m.creates.WithLabelValues("created").Inc()
	}
}

func (m *Metrics) createFailed() {
	if m != nil {
		m.creates.WithLabelValues("failed").Inc()
	}
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
