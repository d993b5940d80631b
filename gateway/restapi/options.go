package restapi

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandlane/sandlane/gateway/restapi/ratelimit"
)

// Options configure a Server.
type Options struct {
	// Sandboxes, Templates, Keys and Tokens are required.
	Sandboxes Sandboxes
	Templates Templates
	Keys      Keys
	Tokens    Tokens
	// Serving reports whether Keys and the views of the gateway are complete. While they are not,
	// no key is known. Nil: always.
	Serving func() bool
	// Snapshots keeps files of sandboxes; nil: there is no store for them.
	Snapshots Snapshots
	// Secrets keeps what egress puts into requests; nil: there are none.
	Secrets Secrets
	// Builds makes templates; nil: there is no registry for them.
	Builds Builds
	// Domain is where SDKs find <port>-<sandboxID> below, with its port, such as
	// "localhost:8080". Required.
	Domain string
	// Front is asked before the API and answers what is not the API's; nil passes all on.
	Front func(api http.Handler) http.Handler
	// Registerer takes the metrics; nil keeps none.
	Registerer prometheus.Registerer
	// Log is slog.Default() if nil. It gets the audit lines too.
	Log *slog.Logger
	// KeyLimit bounds the requests of each API key; zero means DefaultKeyLimit.
	KeyLimit ratelimit.Limit
	// BadKeyLimit bounds the requests with a wrong key or none from each source;
	// zero means DefaultBadKeyLimit.
	BadKeyLimit ratelimit.Limit
}

// The limits of a Server that was given none.
var (
	DefaultKeyLimit    = ratelimit.Limit{PerSecond: 200, Burst: 1000}
	DefaultBadKeyLimit = ratelimit.Limit{PerSecond: 1, Burst: 20}
)

func (o *Options) complete() error {
	if o.Sandboxes == nil || o.Templates == nil || o.Keys == nil || o.Tokens == nil {
		return errors.New("REST API: Sandboxes, Templates, Keys and Tokens are required")
	}
	if o.Domain == "" {
		return errors.New("REST API: Domain is required")
	}
	if o.Serving == nil {
		o.Serving = func() bool { return true }
	}
	if o.Front == nil {
		o.Front = func(api http.Handler) http.Handler { return api }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.KeyLimit == (ratelimit.Limit{}) {
		o.KeyLimit = DefaultKeyLimit
	}
	if o.BadKeyLimit == (ratelimit.Limit{}) {
		o.BadKeyLimit = DefaultBadKeyLimit
	}
	for _, l := range []ratelimit.Limit{o.KeyLimit, o.BadKeyLimit} {
		if l.PerSecond <= 0 || l.Burst < 1 {
			return errors.New("REST API: a limit needs a rate above 0 and a burst of at least 1")
		}
	}
	return nil
}
