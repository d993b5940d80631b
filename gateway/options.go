package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/routecache"
)

// File names inside Options.RunDir.
const (
	ExtProcSocket    = "extproc.sock"
	ControlSocket    = "control.sock"
	APISocket        = "api.sock"
	EnvoyAdminSocket = "envoy-admin.sock"
)

// Where Sandlane keeps leases and the gateways' own Secrets, and where API keys.
const (
	DefaultSystemNamespace = access.DefaultSystemNamespace
	DefaultKeyNamespace    = access.DefaultKeyNamespace
)

// Options configure a gateway. Config, Name and RunDir are required; the zero
// value of the rest works.
type Options struct {
	// Config reaches the API server. Client-side rate limits are switched off on
	// a copy: the server has its own, and claims must not queue behind each other.
	Config *rest.Config
	// Name is the gateway's lease: the pod's name and UID on a cluster.
	Name string
	// PodUID is the UID of the pod in which this process and its Envoy run; the pod must
	// hold nothing of another gateway. Empty if there is no pod.
	PodUID string
	// RunDir holds the unix sockets: ours and Envoy's admin socket.
	RunDir string
	// ControlAddress is the IP address and port where controllers reach this
	// gateway, from other pods as well; it requires ControlTLS. Empty is a unix
	// socket in RunDir. Port 0 is any that is free.
	ControlAddress string
	// ControlTLS are the files of the mutual TLS between this gateway and controllers.
	// If none is given, any process that may open the unix socket counts as a controller.
	ControlTLS controlplane.TLSFiles
	// SystemNamespace is DefaultSystemNamespace if empty.
	SystemNamespace string
	// KeyNamespace is DefaultKeyNamespace if empty.
	KeyNamespace string
	// ClosedRanges are CIDR blocks that no sandbox may connect to, besides
	// link-local addresses.
	ClosedRanges []string
	// FirstRequestPool is where a sandbox comes from if a first request does not
	// say. Empty means that such a request is not found.
	FirstRequestPool types.NamespacedName
	// Domain is what SDKs are told to find <port>-<ID> below, with its port if
	// that is not the scheme's own; DefaultDomain if empty.
	Domain string
	// MetricsAddress is where /metrics, /metrics/envoy, /healthz and /readyz are
	// served. Empty serves them nowhere.
	MetricsAddress string
	// BuildInfo is served with the metrics, and LogLevel at /log-level. Nil: neither is.
	BuildInfo prometheus.Collector
	LogLevel  http.Handler
	// LeaseDuration and RenewEvery are those of controlplane if 0.
	LeaseDuration, RenewEvery time.Duration
	// CacheSize is the number of routes kept, routecache.DefaultSize if 0.
	CacheSize int
	// FastPath lets Envoy answer hits from a table of routes in FastPathFolder, which is
	// on tmpfs and is told to Envoy's module. Where that cannot be, ExtProc answers. A
	// folder without FastPath is only settled: the process before may have used it.
	FastPath       bool
	FastPathFolder string
	// MaxWait is how long a first request waits for a pod, longestWait at most;
	// extproc's default if 0.
	MaxWait time.Duration
	// IdleTick is how often Envoy is asked what is open, DefaultIdleTick if 0. It
	// must be at most a quarter of the shortest idle timeout in use.
	IdleTick time.Duration
	// MaxStreams is how many requests Envoy takes at once: its --max-streams;
	// envoy.DefaultMaxStreams if 0.
	MaxStreams int
	// MaxOpen is how many requests one sandbox may have open, counted at each IdleTick;
	// further ones get 429. 0 is no limit.
	MaxOpen int
	// DrainDelay is how long Envoy takes new connections after the stop began:
	// load balancers need that time to notice. 0 is no time.
	DrainDelay time.Duration
	// DrainGrace bounds the drain of Envoy, DrainDelay included: what is open then
	// is cut. DefaultDrainGrace if 0.
	DrainGrace time.Duration
	// CheckpointDir is the folder of checkpoints' data. Empty: there are no snapshots.
	CheckpointDir string
	// TemplateRegistry is where what the REST API builds is kept, with a path. Empty: it builds
	// no templates. TemplateBases are the images that may be bases (package store), and
	// TemplateCredentials is the file with the logins of the registry (package logins).
	TemplateRegistry    string
	TemplateBases       []string
	TemplateCredentials string
	// MaxCheckpointBytes bounds the data of one checkpoint, DefaultMaxCheckpointBytes if 0.
	MaxCheckpointBytes int64
	// MaxSnapshots is how many snapshots a namespace keeps, MaxSnapshotsPerKey how many of
	// them one API key has made; another one is refused with 429. 0 is no limit.
	MaxSnapshots, MaxSnapshotsPerKey int
	// ForceStop ends the grace when it is closed. Nil never does.
	ForceStop <-chan struct{}
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Defaults of the drain. The delay is that of the command line.
const (
	DefaultDrainDelay = 5 * time.Second
	DefaultDrainGrace = 30 * time.Second
)

// DefaultMaxCheckpointBytes is 1 GiB.
const DefaultMaxCheckpointBytes = 1 << 30

// The command line's limits of snapshots: no key takes all that its namespace has.
const (
	DefaultMaxSnapshots       = 1000
	DefaultMaxSnapshotsPerKey = 500
)

// DefaultDomain is that of an Envoy on this machine with its default port.
const DefaultDomain = "localhost:8080"

// DefaultMaxOpen is the command line's: a quarter of what an Envoy takes by default.
const DefaultMaxOpen = envoy.DefaultMaxStreams / 4

// DefaultIdleTick fits idle timeouts of 4 s and more.
const DefaultIdleTick = time.Second

// longestWait is the longest MaxWait. Envoy ignores a request for more time than its
// max_message_timeout, and would give up after its message_timeout.
const longestWait = envoy.DefaultMaxMessageTimeout - extproc.WaitMargin

// Complete fills in the defaults.
func (o *Options) Complete() {
	if o.SystemNamespace == "" {
		o.SystemNamespace = DefaultSystemNamespace
	}
	if o.KeyNamespace == "" {
		o.KeyNamespace = DefaultKeyNamespace
	}
	if o.Domain == "" {
		o.Domain = DefaultDomain
	}
	if o.CacheSize == 0 {
		o.CacheSize = routecache.DefaultSize
	}
	if o.IdleTick == 0 {
		o.IdleTick = DefaultIdleTick
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = envoy.DefaultMaxStreams
	}
	if o.MaxCheckpointBytes == 0 {
		o.MaxCheckpointBytes = DefaultMaxCheckpointBytes
	}
	if o.DrainGrace == 0 {
		o.DrainGrace = DefaultDrainGrace
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

var leaseName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// Validate says what is missing or out of range. Call it after Complete.
func (o *Options) Validate() error {
	if _, err := egress.ClosedRanges(o.ClosedRanges); err != nil {
		return fmt.Errorf("closed ranges: %w", err)
	}
	switch {
	case o.Config == nil:
		return errors.New("no API server configuration")
	case !leaseName.MatchString(o.Name):
		return fmt.Errorf("gateway name %q is not a valid object name", o.Name)
	case o.FastPath && o.FastPathFolder == "":
		return errors.New("the fast path needs a folder")
	case o.RunDir == "":
		return errors.New("no run directory")
	case o.MaxWait > longestWait:
		return fmt.Errorf("max wait %v: must be at most %v, since Envoy waits no longer than %v for an answer", o.MaxWait, longestWait, envoy.DefaultMaxMessageTimeout)
	}
	if err := o.validateSizes(); err != nil {
		return err
	}
	return o.validateControl()
}

// validateSizes says which size or duration is negative.
func (o *Options) validateSizes() error {
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"lease duration", o.LeaseDuration}, {"time between renewals", o.RenewEvery}, {"idle tick", o.IdleTick},
		{"max wait", o.MaxWait}, {"drain delay", o.DrainDelay}, {"drain grace", o.DrainGrace},
	} {
		if d.is < 0 {
			return fmt.Errorf("%s %v: must not be negative", d.name, d.is)
		}
	}
	for _, n := range []struct {
		name string
		is   int64
	}{
		{"cache size", int64(o.CacheSize)}, {"max streams", int64(o.MaxStreams)}, {"max open requests", int64(o.MaxOpen)}, {"max bytes of a checkpoint", o.MaxCheckpointBytes},
		{"max snapshots", int64(o.MaxSnapshots)}, {"max snapshots of a key", int64(o.MaxSnapshotsPerKey)},
	} {
		if n.is < 0 {
			return fmt.Errorf("%s %d: must not be negative", n.name, n.is)
		}
	}
	return nil
}

func (o *Options) path(name string) string { return filepath.Join(o.RunDir, name) }

// ParsePool parses [namespace/]name; the namespace is "default" if left out.
// An empty string is no pool.
func ParsePool(s string) (types.NamespacedName, error) {
	if s == "" {
		return types.NamespacedName{}, nil
	}
	ns, name, ok := strings.Cut(s, "/")
	if !ok {
		ns, name = "default", s
	}
	if !leaseName.MatchString(ns) || !leaseName.MatchString(name) {
		return types.NamespacedName{}, fmt.Errorf("%q is not of the form [namespace/]name", s)
	}
	return types.NamespacedName{Namespace: ns, Name: name}, nil
}
