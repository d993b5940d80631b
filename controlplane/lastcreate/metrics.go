package lastcreate

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of writes.
const (
	written   = "written"
	meanwhile = "meanwhile" // another gateway wrote first
	failed    = "failed"
)

func newWrites() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "sandlane", Subsystem: "lastcreate", Name: "writes_total",
		Help: "Writes of when a pool was last asked for a sandbox, by outcome.",
	}, []string{"outcome"})
	for _, outcome := range []string{written, meanwhile, failed} {
		c.WithLabelValues(outcome)
	}
	return c
}

// RegisterMetrics registers the tracker's metrics.
func (t *Tracker) RegisterMetrics(reg prometheus.Registerer) error {
	if err := reg.Register(t.writes); err != nil {
		return fmt.Errorf("register metrics of last creates: %w", err)
	}
	return nil
}
