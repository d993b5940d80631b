package pause

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/agent"
)

// What this gateway was asked for; the label "op".
const (
	opPause  = "pause"  // by the REST API
	opResume = "resume" // by the REST API
	opWake   = "wake"   // by requests, once for all that share it
	opRepeat = "repeat" // by the controller: the order alone
)

// Metrics counts pauses and resumes.
type Metrics struct{ seconds *prometheus.HistogramVec }

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "sandlane", Subsystem: "pause", Name: "seconds",
		Help: "Time of pauses and resumes by this gateway, by op (pause and resume of the REST API, wake by requests, " +
			"repeat for the controller), mode and outcome (conflict: the sandbox was not as asked for).",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
	}, []string{"op", "mode", "outcome"})}
	for _, op := range []string{opPause, opResume, opWake, opRepeat} {
		m.seconds.WithLabelValues(op, string(v1alpha1.PauseFreeze), outcomeOf(nil))
	}
	return m
}

// did notes what one call came to that began then.
func (m *Metrics) did(op string, begun time.Time, err error) {
	m.seconds.WithLabelValues(op, string(v1alpha1.PauseFreeze), outcomeOf(err)).Observe(time.Since(begun).Seconds())
}

// outcomeOf is the metric label of how a pause or a resume went.
func outcomeOf(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, "done"},
		{ErrNotRunning, "conflict"},
		{ErrChanged, "conflict"},
		{ErrUnsupported, "unsupported"},
		{agent.ErrNoFreezer, "unsupported"},
		{ErrUnanswered, "unanswered"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "failed"
}
