package snapshots

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/gateway/agent"
)

// What this gateway was asked for; the label "op".
const (
	opCreate  = "create"
	opRestore = "restore" // into the pod of a new sandbox
)

// Metrics counts snapshots.
type Metrics struct {
	seconds *prometheus.HistogramVec
	bytes   prometheus.Counter
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "snapshot", Name: "seconds",
			Help: "Time of snapshots and restores by this gateway, by op (create, restore) and outcome (limit: as many are kept as may be; " +
				"conflict: the sandbox was not running, or being snapshotted; full: the store has no room).",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"op", "outcome"}),
		bytes: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "snapshot", Name: "bytes_total",
			Help: "Bytes of the archives that this gateway has put into the store of checkpoints.",
		}),
	}
	for _, outcome := range []string{outcomeDone, outcomeFailed, outcomeFull} {
		m.seconds.WithLabelValues(opCreate, outcome)
	}
	for _, outcome := range []string{outcomeDone, outcomeFailed} {
		m.seconds.WithLabelValues(opRestore, outcome)
	}
	return m
}

// did counts a call that began at begun and ended with err.
func (m *Metrics) did(op string, begun time.Time, err error) {
	m.seconds.WithLabelValues(op, outcomeOf(err)).Observe(time.Since(begun).Seconds())
}

// The outcomes that alerts ask for.
const (
	outcomeDone   = "done"
	outcomeFailed = "failed"
	outcomeFull   = "full"
)

// outcomeOf is the metric label of how a snapshot or a restore went.
func outcomeOf(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, outcomeDone},
		{e2b.ErrNotFound, "not_found"},
		{e2b.ErrNotRunning, "conflict"},
		{e2b.ErrSnapshotting, "conflict"},
		{e2b.ErrSnapshotLimit, "limit"},
		{e2b.ErrBusy, "limited"},
		{checkpoint.ErrTooLarge, "too_large"},
		{checkpoint.ErrFull, outcomeFull},
		{agent.ErrNoArchive, "unsupported"},
		{ErrMismatch, "unsupported"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return outcomeFailed
}
