package restapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/httpserver"
	"github.com/sandlane/sandlane/gateway/restapi/idempotency"
	"github.com/sandlane/sandlane/gateway/restapi/ratelimit"
	"github.com/sandlane/sandlane/gateway/restapi/requestid"
	"github.com/sandlane/sandlane/gateway/restapi/routes"
)

// A request:
//
// CORS headers → route (404, 405) → API key (401, 429, 503) → rate limit (429) →
// body (413, 408) → validation (400) → handler. Nothing is read of a body before
// its key is known. Every answer but 2xx has the body {"code", "message"}; what
// was not foreseen, panics included, is a 500. Each request is counted by route template
// and status; each that may change something, or gets an error, leaves a line in the log,
// with the ID that the error has in a header.

// Server answers the REST API. It is safe for concurrent use.
type Server struct {
	o       Options
	router  *routes.Router
	metrics *metrics
	keys    *ratelimit.Limiters // by identity
	badKeys *ratelimit.Limiters // by source
	answers *idempotency.Answers
	pauses  singleflight.Group // by namespace, ID and mode
	resumes singleflight.Group // by namespace and ID
	// logLimit is for warnings that a client can cause in numbers.
	logLimit rate.Sometimes
	timeouts httpserver.Timeouts // a field, so that tests need not wait for them
}

var _ api.ServerInterface = (*Server)(nil)

// NewServer returns a server that answers at once; Serve or Handler make use of it.
func NewServer(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	doc, err := spec()
	if err != nil {
		return nil, fmt.Errorf("REST API: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("REST API: register metrics: %w", err)
	}
	s := &Server{
		o:        o,
		router:   routes.New(doc),
		metrics:  m,
		keys:     ratelimit.New(o.KeyLimit),
		badKeys:  ratelimit.New(o.BadKeyLimit),
		answers:  idempotency.New(),
		logLimit: rate.Sometimes{Interval: time.Second},
		timeouts: defaultTimeouts,
	}
	api.HandlerWithOptions(s, api.StdHTTPServerOptions{
		BaseRouter:       s.router,
		ErrorHandlerFunc: func(w http.ResponseWriter, r *http.Request, err error) { s.fail(w, r, refuse(400, err.Error())) },
	})
	s.metrics.expect(s.router.All())
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if isUnsupported(op) {
				s.router.HandleFunc(method+" "+path, s.unsupported(op.Description))
			}
		}
	}
	return s, nil
}

// Handler is the API without a listener.
func (s *Server) Handler() http.Handler {
	return requestid.Handler(s.o.Front(http.HandlerFunc(s.serveHTTP)))
}

var defaultTimeouts = httpserver.Timeouts{
	Header: 5 * time.Second,
	Body:   15 * time.Second,
	// A create has answered by then, and a client that does not read its answer is cut off.
	Write:  createDeadline + 25*time.Second,
	Idle:   2 * time.Minute,
	Finish: 10 * time.Second,
	Abort:  5 * time.Second,
}

// Serve answers on l, which it closes, until ctx ends. It then takes no more connections
// and lets requests end; those that do not are cancelled, so that a create undoes what it
// made. It returns nil when it was stopped by ctx.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := httpserver.Serve(ctx, l, s.Handler(), s.timeouts, s.o.Log); err != nil {
		return fmt.Errorf("REST API: %w", err)
	}
	return nil
}
