package sandboxpool

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient"
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

var (
	phases = []v1alpha1.PodPhase{
		v1alpha1.PodWarming, v1alpha1.PodIdle, v1alpha1.PodStarting, v1alpha1.PodRunning, v1alpha1.PodStopping, v1alpha1.PodFailed,
	}
	// deleteReasons are all for which a pod is deleted.
	deleteReasons = []string{"Ended", "PoolDeleted", "Outdated", "NotRecycled", "AddressBusy", "ScaleDown"}
	endReasons    = []v1alpha1.EndReason{
		v1alpha1.EndCompleted, v1alpha1.EndReleased, v1alpha1.EndIdleTimeout, v1alpha1.EndEndAt,
		v1alpha1.EndStartupTimeout, v1alpha1.EndPauseTimeout, v1alpha1.EndDeleted, v1alpha1.EndFailed, v1alpha1.EndCanceled,
	}
)

// poolVecs are the metrics with the labels namespace and pool.
type poolVecs struct {
	pods, available, addressless, wanted, atMost, atBound, waiting, paused *prometheus.GaugeVec
	creates, ends                                                          *prometheus.CounterVec
	idle                                                                   *prometheus.HistogramVec
}

func newPoolVecs(f promauto.Factory) poolVecs {
	pool := func(more ...string) []string { return append([]string{"namespace", "pool"}, more...) }
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "sandlane", Subsystem: "sandboxpool", Name: name, Help: help}
	}
	return poolVecs{
		pods:        f.NewGaugeVec(gauge("pods", "Pods by pool and phase; those that are being deleted are not counted."), pool("phase")),
		available:   f.NewGaugeVec(gauge("available_pods", "Idle pods that are Ready, by pool."), pool()),
		addressless: f.NewGaugeVec(gauge("address_waiting_pods", "Ready pods that have waited for more than ten seconds until their address may be used again, by pool."), pool()),
		wanted:      f.NewGaugeVec(gauge("wanted_pods", "Unclaimed pods that the pool is asked for: spec.replicas, and one for each claim that waits."), pool()),
		waiting:     f.NewGaugeVec(gauge("waiting_claims", "Sandboxes that wait for a pod, by the gateways' account."), pool()),
		paused:      f.NewGaugeVec(gauge("paused_sandboxes", "Sandboxes that are paused, by pool; their pods are running ones."), pool()),
		atMost:      f.NewGaugeVec(gauge("max_pods", "The most pods that the pool may have (spec.maxPods); 0 is no limit."), pool()),
		atBound:     f.NewGaugeVec(gauge("at_bound", "1 while more pods are wanted than the pool's maxPods or its namespace's ResourceQuota allows and none is left unclaimed, else 0."), pool()),
		creates: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "sandboxpool", Name: "pod_creates_total",
			Help: "Pods created, by pool and outcome; quota: a ResourceQuota of the pool's namespace refused one.",
		}, pool("outcome")),
		ends: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "sandbox", Name: "ended_total",
			Help: "Ends carried out, by pool and reason; without a pool, those of sandboxes whose pool is gone.",
		}, pool("reason")),
		idle: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "sandboxpool", Name: "pod_idle_seconds",
			Help:    "Time from a pod's creation, in whole seconds, until it was first idle: scheduling, image pulls, its start and readiness, and the wait for its address.",
			Buckets: []float64{1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600},
		}, pool()),
	}
}

// poolMetrics are those of one pool.
type poolMetrics struct {
	created, failed, quota                                           prometheus.Counter
	available, addressless, wanted, atMost, atBound, waiting, paused prometheus.Gauge
	idle                                                             prometheus.Observer
	pods                                                             map[v1alpha1.PodPhase]prometheus.Gauge
	ends                                                             map[v1alpha1.EndReason]prometheus.Counter
}

func (v poolVecs) of(namespace, pool string) *poolMetrics {
	p := &poolMetrics{
		created:     v.creates.WithLabelValues(namespace, pool, "created"),
		failed:      v.creates.WithLabelValues(namespace, pool, "failed"),
		quota:       v.creates.WithLabelValues(namespace, pool, "quota"),
		available:   v.available.WithLabelValues(namespace, pool),
		addressless: v.addressless.WithLabelValues(namespace, pool),
		wanted:      v.wanted.WithLabelValues(namespace, pool),
		atMost:      v.atMost.WithLabelValues(namespace, pool),
		atBound:     v.atBound.WithLabelValues(namespace, pool),
		waiting:     v.waiting.WithLabelValues(namespace, pool),
		paused:      v.paused.WithLabelValues(namespace, pool),
		idle:        v.idle.WithLabelValues(namespace, pool),
		pods:        map[v1alpha1.PodPhase]prometheus.Gauge{},
		ends:        map[v1alpha1.EndReason]prometheus.Counter{},
	}
	for _, phase := range phases {
		p.pods[phase] = v.pods.WithLabelValues(namespace, pool, string(phase))
	}
	for _, reason := range endReasons {
		p.ends[reason] = v.ends.WithLabelValues(namespace, pool, string(reason))
	}
	return p
}

// seen sets the gauges of a pool that exists.
func (m *Metrics) seen(pool *v1alpha1.SandboxPool, c counts, paused int) {
	if m == nil {
		return
	}
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	m.mu.Lock()
	p := m.pools[key]
	if p == nil {
		p = m.vecs.of(key.Namespace, key.Name)
		m.pools[key] = p
	}
	m.mu.Unlock()
	p.available.Set(float64(c.available()))
	p.addressless.Set(float64(len(c.waiting)))
	p.atMost.Set(float64(pool.Spec.MaxPods))
	p.paused.Set(float64(paused))
	for phase, n := range map[v1alpha1.PodPhase]int{
		v1alpha1.PodWarming: c.warming + len(c.waiting), v1alpha1.PodIdle: c.idle, v1alpha1.PodStarting: c.starting,
		v1alpha1.PodRunning: c.running, v1alpha1.PodStopping: c.stopping, v1alpha1.PodFailed: c.failed,
	} {
		p.pods[phase].Set(float64(n))
	}
}

// demanded sets what a pool is asked for.
func (m *Metrics) demanded(key types.NamespacedName, wanted, waiting int) {
	if p := m.of(key); p != nil {
		p.wanted.Set(float64(wanted))
		p.waiting.Set(float64(waiting))
	}
}

// gone removes the series of a pool that does not exist.
func (m *Metrics) gone(key types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[key] == nil {
		return
	}
	delete(m.pools, key)
	labels := prometheus.Labels{"namespace": key.Namespace, "pool": key.Name}
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.vecs.pods, m.vecs.available, m.vecs.addressless, m.vecs.wanted, m.vecs.atMost, m.vecs.atBound, m.vecs.waiting, m.vecs.paused, m.vecs.creates, m.vecs.ends, m.vecs.idle,
	} {
		vec.DeletePartialMatch(labels)
	}
}

// of returns a pool's metrics; nil if it was not seen, or is gone.
func (m *Metrics) of(key types.NamespacedName) *poolMetrics {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools[key]
}

// scaled sets whether the pool is at a bound of its tenant.
func (m *Metrics) scaled(pool *v1alpha1.SandboxPool, out outcome) {
	p := m.of(types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name})
	switch {
	case p == nil:
	case out.atBound():
		p.atBound.Set(1)
	default:
		p.atBound.Set(0)
	}
}

// created counts a pod that was made, or could not be because of err.
func (m *Metrics) created(key types.NamespacedName, err error) {
	switch p := m.of(key); {
	case p == nil:
	case err == nil:
		p.created.Inc()
	case kubeclient.QuotaExceeded(err):
		p.quota.Inc()
	default:
		p.failed.Inc()
	}
}

// turnedIdle notes how long a pod took from its creation until it was idle.
func (m *Metrics) turnedIdle(key types.NamespacedName, took time.Duration) {
	if p := m.of(key); p != nil {
		p.idle.Observe(max(took, 0).Seconds())
	}
}

// Ended counts an end that was carried out.
func (m *Metrics) Ended(namespace, pool string, reason v1alpha1.EndReason) {
	if m == nil {
		return
	}
	if p := m.of(types.NamespacedName{Namespace: namespace, Name: pool}); p != nil && p.ends[reason] != nil {
		p.ends[reason].Inc()
		return
	}
	m.vecs.ends.WithLabelValues("", "", string(reason)).Inc()
}
