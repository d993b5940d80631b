package autoscaler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Metrics of the autoscaler. A nil *Metrics counts nothing.
type Metrics struct {
	decisions, attempts, envWrites   *prometheus.CounterVec
	wanted, idle, waiting, saturated *prometheus.GaugeVec
}

// NewMetrics registers the metrics; a nil registerer registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	count := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := f.NewCounterVec(prometheus.CounterOpts{Namespace: "sandlane", Subsystem: "autoscaler", Name: name, Help: help}, []string{label})
		for _, of := range values {
			v.WithLabelValues(of)
		}
		return v
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "sandlane", Subsystem: "autoscaler", Name: name, Help: help}, []string{"namespace", "pool"})
	}
	return &Metrics{
		decisions: count("decisions_total", "Changes of a member's replicas that were written, by reason.", "reason",
			string(ReasonBounds), string(ReasonDemand), string(ReasonProactive), string(ReasonIdle)),
		attempts: count("attempts_total", "Steps up that were wanted, by how they ended.", "result",
			string(v1alpha1.ScaleUpEnough), string(v1alpha1.ScaleUpJustRight), string(v1alpha1.ScaleUpInsufficient), string(v1alpha1.ScaleUpFailed)),
		envWrites: count("env_writes_total", "Writes of replicas to envs, by outcome.", "outcome", "written", "failed"),
		wanted:    gauge("wanted_replicas", "Replicas that the env asks of a member's pool."),
		idle:      gauge("idle_pods", "Pods of a member's pool that a claim can have at once."),
		waiting:   gauge("waiting_claims", "Sandboxes that wait for a pod of a member, over all gateways."),
		saturated: gauge("saturated", "1 while a member counts as unable to grow."),
	}
}

func (m *Metrics) decided(r Reason) {
	if m != nil {
		m.decisions.WithLabelValues(string(r)).Inc()
	}
}

func (m *Metrics) attempt(r v1alpha1.ScaleUpResult) {
	if m != nil {
		m.attempts.WithLabelValues(string(r)).Inc()
	}
}

func (m *Metrics) envWrite(outcome string) {
	if m != nil {
		m.envWrites.WithLabelValues(outcome).Inc()
	}
}

// show sets the gauges of an env's members, and drops those of members that it has no
// more, together with what is remembered of them.
func (r *Reconciler) show(env types.NamespacedName, members []sized, now time.Time) {
	there := make(map[string]types.UID, len(members))
	for _, s := range members {
		there[s.Name] = s.pool.UID
		if m := r.Metrics; m != nil {
			saturated := 0.0
			if s.State.SaturatedUntil.After(now) {
				saturated = 1
			}
			m.wanted.WithLabelValues(env.Namespace, s.Name).Set(float64(s.Replicas))
			m.idle.WithLabelValues(env.Namespace, s.Name).Set(float64(s.Idle))
			m.waiting.WithLabelValues(env.Namespace, s.Name).Set(float64(s.Waiting))
			m.saturated.WithLabelValues(env.Namespace, s.Name).Set(saturated)
		}
	}
	for _, name := range r.memory.members(env, there) {
		if m := r.Metrics; m != nil {
			for _, g := range []*prometheus.GaugeVec{m.wanted, m.idle, m.waiting, m.saturated} {
				g.DeleteLabelValues(env.Namespace, name)
			}
		}
	}
}

// forget drops what is shown and remembered of an env that is gone.
func (r *Reconciler) forget(env types.NamespacedName) {
	r.show(env, nil, time.Time{})
	r.pace.forget(env)
}
