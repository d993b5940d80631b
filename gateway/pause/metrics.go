package pause

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// The values of the metric label "op": what this gateway was asked for.
const (
	opPause  = "pause"  // by the REST API
	opResume = "resume" // by the REST API
	opWake   = "wake"   // a resume by requests to the sandbox, counted once for all that share it
	opRepeat = "repeat" // by the controller: the order to the freezer, without a write
)

// Metrics counts pauses and resumes.
type Metrics struct {
	seconds *prometheus.HistogramVec
	waits   prometheus.Histogram
	waiting prometheus.Gauge
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	buckets := []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}
	m := &Metrics{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "pause", Name: "seconds",
			Help: "Time of pauses and resumes by this gateway, by op (pause and resume of the REST API, wake by requests, " +
				"repeat for the controller), mode and outcome (conflict: the sandbox was not as asked for).",
			Buckets: buckets,
		}, []string{"op", "mode", "outcome"}),
		waits: f.NewHistogram(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "pause", Name: "wait_seconds",
			Help:    "Time that one request waited for a paused sandbox to be resumed.",
			Buckets: buckets,
		}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "pause", Name: "waiting_requests",
			Help: "Requests that wait for a paused sandbox to be resumed.",
		}),
	}
	for _, op := range []string{opPause, opResume, opWake, opRepeat} {
		for _, outcome := range []string{outcomeDone, outcomeFailed, outcomeUnanswered} {
			m.seconds.WithLabelValues(op, string(v1alpha1.PauseFreeze), outcome)
		}
	}
	for _, op := range []string{opPause, opRepeat} { // package activation resumes hibernated sandboxes
		m.seconds.WithLabelValues(op, string(v1alpha1.PauseHibernate), outcomeOf(nil))
	}
	return m
}

// observe counts one call that began at begun and ended with err.
func (m *Metrics) observe(op string, mode v1alpha1.PauseMode, begun time.Time, err error) {
	m.observeAs(op, cmp.Or(mode, v1alpha1.PauseFreeze), begun, outcomeOf(err))
}

func (m *Metrics) observeAs(op string, mode v1alpha1.PauseMode, begun time.Time, outcome string) {
	m.seconds.WithLabelValues(op, string(mode), outcome).Observe(time.Since(begun).Seconds())
}

// markWaiting counts a request as waiting until end is called.
func (m *Metrics) markWaiting() (end func()) {
	begun := time.Now()
	m.waiting.Inc()
	return func() {
		m.waiting.Dec()
		m.waits.Observe(time.Since(begun).Seconds())
	}
}

// The outcomes that the chart's alert rules name.
const (
	outcomeDone       = "done"
	outcomeFailed     = "failed"
	outcomeUnanswered = "unanswered"
	// outcomeHibernated: a wake found that the sandbox needs a pod, which an activation gives.
	outcomeHibernated = "hibernated"
)

// outcomeOf returns the metric label of a pause or resume that ended with err.
func outcomeOf(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, outcomeDone},
		{ErrNotRunning, "conflict"},
		{writes.ErrStale, "conflict"},
		{ErrUnsupported, "unsupported"},
		{ErrNoStore, "unsupported"},
		{sandboxdclient.ErrNoFreezer, "unsupported"},
		{ErrUnanswered, outcomeUnanswered},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return outcomeFailed
}
