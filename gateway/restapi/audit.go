package restapi

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandlane/sandlane/gateway/restapi/requestid"
	"github.com/sandlane/sandlane/gateway/restapi/routes"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	// unsupported has no field of a client's making: what no schema knows is otherField.
	unsupported *prometheus.CounterVec
}

// Values of the label field beside names of fields.
const (
	otherField = "other" // one that openapi.yaml does not name, and that is ignored
	allOfIt    = "all"   // the operation is not supported
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "e2b", Name: "requests_total",
			Help: "Requests to the REST API, by route template and status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sandlane", Subsystem: "e2b", Name: "request_seconds",
			Help:    "How long requests to the REST API took, by route template.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50},
		}, []string{"route"}),
		unsupported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sandlane", Subsystem: "e2b", Name: "unsupported_total",
			Help: "Requests that asked the REST API for what it does not do, by operation and field: refused, or, as other, ignored.",
		}, []string{"operation", "field"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.unsupported} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// expect makes the counters of failures of each route before the first one: a rate
// misses the event that a series begins with.
func (m *metrics) expect(all []*routes.Route) {
	for _, rt := range all {
		for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
			m.requests.WithLabelValues(rt.Name(), statusLabel(status))
		}
	}
}

// observe counts a request and, if it may have changed something or got an error, leaves
// a line that says who did what. No key, token, value or text of a client is in it; the IDs
// of sandbox and request are of a checked form.
func (s *Server) observe(w *recorder, r *http.Request, c *call) {
	name, took := "none", time.Since(c.started)
	if c.route != nil {
		name = c.route.Name()
	}
	s.metrics.requests.WithLabelValues(name, statusLabel(w.status)).Inc()
	s.metrics.duration.WithLabelValues(name).Observe(took.Seconds())
	if c.route == nil || c.quiet || !c.route.Mutates() && w.status < http.StatusBadRequest {
		return
	}
	s.o.Log.LogAttrs(r.Context(), slog.LevelInfo, "audit",
		slog.String("method", c.route.Method), slog.String("route", c.route.Path),
		slog.String("team", c.owner.Team), slog.String("namespace", c.owner.Namespace),
		slog.String("key", c.owner.KeyID), slog.String("sandbox", c.sandboxID),
		slog.String("request", requestid.Of(r)), slog.Int("status", w.status), slog.Duration("duration", took))
}

// statusLabel is the status that was answered; a handler that wrote nothing has
// answered 200.
func statusLabel(status int) string {
	if status == 0 {
		status = http.StatusOK
	}
	return strconv.Itoa(status)
}
