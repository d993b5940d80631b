package checkpoints

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Metrics counts the Checkpoints that were reconciled, and their data. A nil *Metrics counts
// nothing.
type Metrics struct {
	objects, bytes *prometheus.GaugeVec

	mu   sync.Mutex // guards the rest
	kept map[types.NamespacedName]kept
}

// kept is how one Checkpoint is counted.
type kept struct {
	cause v1alpha1.CheckpointCause
	phase v1alpha1.CheckpointPhase
	bytes int64
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		kept: map[types.NamespacedName]kept{},
		objects: f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "checkpoint", Name: "objects",
			Help: "Checkpoints that exist, by cause and phase.",
		}, []string{"cause", "phase"}),
		bytes: f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "checkpoint", Name: "bytes",
			Help: "Bytes of checkpoints' data in the store, by cause.",
		}, []string{"cause"}),
	}
	for _, cause := range []v1alpha1.CheckpointCause{v1alpha1.CheckpointPause, v1alpha1.CheckpointSnapshot} {
		m.bytes.WithLabelValues(string(cause))
		for _, phase := range []v1alpha1.CheckpointPhase{v1alpha1.CheckpointSucceeded, v1alpha1.CheckpointFailed, v1alpha1.CheckpointTerminating} {
			m.objects.WithLabelValues(string(cause), string(phase))
		}
	}
	return m
}

// note counts the Checkpoint of this name as it is now; nil means that it is gone.
func (m *Metrics) note(name types.NamespacedName, cp *v1alpha1.Checkpoint) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, ok := m.kept[name]; ok {
		m.count(was, -1)
		delete(m.kept, name)
	}
	if cp == nil {
		return
	}
	is := kept{cp.Spec.Cause, cp.Status.Phase, cp.Status.Bytes}
	if is.phase == "" {
		is.phase = v1alpha1.CheckpointPending
	}
	m.kept[name] = is
	m.count(is, 1)
}

func (m *Metrics) count(k kept, sign float64) {
	m.objects.WithLabelValues(string(k.cause), string(k.phase)).Add(sign)
	m.bytes.WithLabelValues(string(k.cause)).Add(sign * float64(k.bytes))
}
