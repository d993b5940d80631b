package files

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sandlane/sandlane/checkpoint"
)

// fullStore has room for nothing.
type fullStore struct{ Store }

func (fullStore) Put(context.Context, string, io.Reader) (checkpoint.Info, error) {
	return checkpoint.Info{}, checkpoint.ErrFull
}

// A full store is told by a metric, of snapshots and of pauses, until an archive finds room.
func TestFullStoreIsTold(t *testing.T) {
	w := newWorld(t)
	w.x.o.Metrics = NewMetrics(prometheus.NewRegistry())
	store := w.x.o.Store
	snapshot := func() error { return w.take("k1") }
	pause := func() error {
		w.files = strings.NewReader("{}\nfiles")
		_, err := NewHibernator(w.x, pauseAgent{w}, nil).Keep(t.Context(), w.sandbox, w.pod)
		return err
	}
	for name, put := range map[string]func() error{"snapshot": snapshot, "pause": pause} {
		w.sandbox.Spec.Paused = name == "pause"
		w.x.o.Store = fullStore{store}
		if err := put(); err == nil || testutil.ToFloat64(w.x.o.Metrics.full) != 1 {
			t.Errorf("%s: %v, and the metric is %v", name, err, testutil.ToFloat64(w.x.o.Metrics.full))
		}
		w.x.o.Store = store
		if err := put(); err != nil || testutil.ToFloat64(w.x.o.Metrics.full) != 0 {
			t.Errorf("%s, with room: %v, and the metric is %v", name, err, testutil.ToFloat64(w.x.o.Metrics.full))
		}
	}
}
