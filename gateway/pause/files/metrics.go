package files

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// The values of the metric label "op": what this gateway was asked for.
const (
	opCreate  = "create"
	opRestore = "restore" // into the pod of a new sandbox
	opResume  = "resume"  // into the next pod of a sandbox that hibernated; of the gateway that completed it
)

// Metrics counts snapshots and restores.
type Metrics struct {
	seconds *prometheus.HistogramVec
	bytes   prometheus.Counter
	full    prometheus.Gauge
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "snapshot", Name: "seconds",
			Help: "Time of snapshots and restores by this gateway, by op (create; restore: into a new sandbox; resume: of one that hibernated) and outcome (limit: as many are kept as the limit allows; " +
				"conflict: the sandbox was not running, or being snapshotted; full: the store has no room).",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"op", "outcome"}),
		bytes: f.NewCounter(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "snapshot", Name: "bytes_total",
			Help: "Bytes of the archives that this gateway has put into the store of checkpoints.",
		}),
		full: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "sandlane", Subsystem: "snapshot", Name: "store_full",
			Help: "1 if the last archive of a snapshot or pause by this gateway found no room in the store of checkpoints, else 0.",
		}),
	}
	for _, outcome := range []string{outcomeDone, outcomeFailed, outcomeFull} {
		m.seconds.WithLabelValues(opCreate, outcome)
	}
	for _, op := range []string{opRestore, opResume} {
		for _, outcome := range []string{outcomeDone, outcomeFailed} {
			m.seconds.WithLabelValues(op, outcome)
		}
	}
	return m
}

// observe counts a call that began at begun and ended with err.
func (m *Metrics) observe(op string, begun time.Time, err error) {
	m.seconds.WithLabelValues(op, outcomeOf(err)).Observe(time.Since(begun).Seconds())
}

// stored notes whether an archive found room in the store.
func (m *Metrics) stored(bytes int64, err error) {
	switch {
	case err == nil:
		m.bytes.Add(float64(bytes))
		m.full.Set(0)
	case errors.Is(err, checkpoint.ErrFull):
		m.full.Set(1)
	}
}

// The outcomes that the chart's alert rules name.
const (
	outcomeDone   = "done"
	outcomeFailed = "failed"
	outcomeFull   = "full"
)

// outcomeOf returns the metric label of a snapshot or restore that ended with err.
func outcomeOf(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{
		{nil, outcomeDone},
		{restapi.ErrNotFound, "not_found"},
		{restapi.ErrNotRunning, "conflict"},
		{restapi.ErrSnapshotting, "conflict"},
		{restapi.ErrSnapshotLimit, "limit"},
		{restapi.ErrBusy, "limited"},
		{checkpoint.ErrTooLarge, "too_large"},
		{checkpoint.ErrFull, outcomeFull},
		{sandboxdclient.ErrNoArchive, "unsupported"},
		{ErrMismatch, "unsupported"},
		{ErrSaveMismatch, "unsupported"},
	} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return outcomeFailed
}
