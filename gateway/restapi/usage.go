package restapi

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
)

// usageAtOnce bounds how many sandboxes one request asks at the same time.
const usageAtOnce = 8

// GetSandboxMetrics is GET /sandboxes/{sandboxID}/metrics.
func (s *Server) GetSandboxMetrics(w http.ResponseWriter, r *http.Request, _ string, params api.GetSandboxMetricsParams) {
	if params.Start != nil && params.End != nil && *params.End < *params.Start {
		s.fail(w, r, refuse(http.StatusBadRequest, "end: is before start"))
		return
	}
	c := callOf(r)
	all, err := s.o.Sandboxes.Metrics(r.Context(), c.owner.Namespace, c.sandboxID, true)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	views := []api.SandboxMetric{}
	for _, m := range all {
		at := m.At.Unix()
		if (params.Start == nil || at >= *params.Start) && (params.End == nil || at <= *params.End) {
			views = append(views, metricView(m))
		}
	}
	writeJSON(w, http.StatusOK, views)
}

// ListSandboxesMetrics is GET /sandboxes/metrics. A sandbox that cannot be asked
// is left out and leaves the others their metrics.
func (s *Server) ListSandboxesMetrics(w http.ResponseWriter, r *http.Request, params api.ListSandboxesMetricsParams) {
	var mu sync.Mutex // guards views
	views := map[string]api.SandboxMetric{}
	var asking errgroup.Group
	asking.SetLimit(usageAtOnce)
	c := callOf(r)
	namespace := c.owner.Namespace
	ids := make([]string, 0, len(params.SandboxIds))
	for _, named := range params.SandboxIds {
		id, ok := sandboxid.Short(named)
		if !ok {
			s.fail(w, r, refuse(http.StatusBadRequest, "sandbox_ids: Invalid sandbox ID"))
			return
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	// Each ID is as much work as a request of its own; one has been counted.
	if extra := len(ids) - 1; extra > 0 {
		if err := s.count(w, c, extra); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	for _, id := range ids {
		asking.Go(func() error {
			all, err := s.o.Sandboxes.Metrics(r.Context(), namespace, id, false)
			if err != nil || len(all) == 0 {
				if err != nil && !errors.Is(err, ErrNotFound) {
					s.logLimit.Do(func() { s.o.Log.Warn("no metrics of a sandbox", "sandbox", id, "err", err) })
				}
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			views[id] = metricView(all[len(all)-1])
			return nil
		})
	}
	_ = asking.Wait() // none of them fails
	writeJSON(w, http.StatusOK, api.SandboxesWithMetrics{Sandboxes: views})
}

func metricView(m Metric) api.SandboxMetric {
	return api.SandboxMetric{
		Timestamp: m.At.UTC().Truncate(time.Second), TimestampUnix: m.At.Unix(),
		CpuCount: m.CPUCount, CpuUsedPct: m.CPUUsedPercent,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}
}
