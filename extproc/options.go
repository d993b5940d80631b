package extproc

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routecache"
)

// Options configure a Server. Socket and the interfaces are required; the
// zero value of everything else works.
type Options struct {
	// Socket is the path of the unix socket to listen on.
	Socket string
	// SocketMode is the socket's file mode. Default 0600.
	SocketMode fs.FileMode

	Cache     *routecache.Cache
	Resolver  Resolver
	Activator Activator
	Keys      Keys
	Pools     Pools
	Tokens    Tokens
	Lease     Lease
	Activity  Activity
	Holds     Holds
	Room      Room

	// Ready says whether the gateway may serve, besides holding its lease: for
	// one, its index is synced. Nil means always. It must not block.
	Ready func() bool

	// FirstRequestPool is where a sandbox comes from whose ID is unknown,
	// if the request does not say. Empty means that such an ID is not found.
	FirstRequestPool types.NamespacedName

	// MaxWait is how long a request may wait for what is outside this process,
	// in all. Default 55s. MaxWait + WaitMargin must not exceed Envoy's
	// max_message_timeout.
	MaxWait time.Duration
	// ShutdownTimeout bounds the graceful stop. Default 10s.
	ShutdownTimeout time.Duration

	// Now is the clock that Activity's uses are read against, in nanoseconds.
	// Default the wall clock, whose steps back lose touches.
	Now func() int64
	// Registerer takes the metrics. Nil registers them nowhere.
	Registerer prometheus.Registerer
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Defaults of Options.
const (
	DefaultMaxWait         = 55 * time.Second
	DefaultShutdownTimeout = 10 * time.Second
)

// WaitMargin is what Envoy waits longer for an answer than the server lets a
// request wait, so that the server's own 503 arrives in time.
const WaitMargin = 5 * time.Second

// Complete fills in the defaults.
func (o *Options) Complete() {
	if o.SocketMode == 0 {
		o.SocketMode = 0o600
	}
	if o.MaxWait == 0 {
		o.MaxWait = DefaultMaxWait
	}
	if o.ShutdownTimeout == 0 {
		o.ShutdownTimeout = DefaultShutdownTimeout
	}
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// Validate says what is missing or out of range. Call it after Complete.
func (o *Options) Validate() error {
	p := o.FirstRequestPool
	switch {
	case o.Socket == "":
		return errors.New("no socket path")
	case o.Cache == nil, o.Resolver == nil, o.Activator == nil, o.Keys == nil,
		o.Pools == nil, o.Tokens == nil, o.Lease == nil, o.Activity == nil, o.Holds == nil, o.Room == nil:
		return errors.New("cache, resolver, activator, keys, pools, tokens, lease, activity, holds and room are all required")
	case o.MaxWait < 0 || o.ShutdownTimeout < 0:
		return errors.New("negative limit")
	case p != types.NamespacedName{} && (!validDNSLabel(p.Namespace) || !validDNSLabel(p.Name)):
		return errors.New("the first-request pool is not of the form namespace/name: " + p.String())
	}
	return nil
}
