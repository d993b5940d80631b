package envoy

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"time"
)

// How long Envoy and its kernel may take between an answer and a connection to the
// pod. They are constants, not options, because MaxHold follows from them, and
// an address must stay unused for longer than that after its fence (controller --address-cooldown;
// docs/design/design.md 4.2).
const (
	// ConnectTimeout bounds one attempt to connect to a pod.
	ConnectTimeout = time.Second
	// Retries is how often a request is tried again: one that was never sent, or one that may
	// be repeated (docs/design/decisions/repeats.md).
	Retries = 1
	// MaxRetryBackOff bounds the pause before such a retry.
	MaxRetryBackOff = 100 * time.Millisecond
	// RepeatAge is how old an answer may be when the attempt to repeat a request has begun.
	RepeatAge = time.Second
	// MaxAge is how old an answer may be when an attempt to connect has begun; the last one
	// begins 1.1 s after the answer if the first times out. The rest is for a worker without
	// processor time: thousands of requests that waited for one sandbox are answered at once.
	MaxAge = 4 * time.Second
	// maxConnecting is how long the kernel tries to connect, also while Envoy stands still:
	// 3 s (shortConnect), and what its timers are late.
	maxConnecting = 3100 * time.Millisecond
	// MaxHold is the longest from an answer until the connection over which its request is
	// sent was made, also if Envoy stands still meanwhile.
	MaxHold = MaxAge + maxConnecting
)

// Names of the sockets in a gateway's run directory.
const (
	ExtProcSocketName = "extproc.sock"
	APISocketName     = "api.sock"
	AdminSocketName   = "envoy-admin.sock"
)

// Names that other parts rely on.
const (
	// SandboxCluster is the cluster of the pods: the prefix of their lines in
	// the admin endpoint /clusters.
	SandboxCluster = "sandbox"
	// AccessLogName names the access log in the messages to the gateway.
	AccessLogName = "activity"
)

// Defaults of Options.
const (
	DefaultListenAddress     = "127.0.0.1"
	DefaultPort              = 8080
	DefaultHealthPort        = 8081
	DefaultMaxStreams        = 10_000
	DefaultMessageTimeout    = 2 * time.Second
	DefaultMaxMessageTimeout = 5 * time.Minute
	DefaultStreamIdleTimeout = 15 * time.Minute
	DefaultHeadersTimeout    = 10 * time.Second
	// DefaultConnectionIdleTimeout is longer than what most balancers and proxies
	// keep an unused connection to what is behind them (60 s).
	DefaultConnectionIdleTimeout = 2 * time.Minute
)

// What Envoy's memory is sized for: what it needs at rest, with 10,000 addresses in
// use, and what an open request takes whose client or sandbox reads nothing: two
// buffers of 256 KiB, and what 7,000 of them took beside (594 KiB each in all).
const (
	baseHeap   = 512 << 20
	streamHeap = 640 << 10
)

// Heap returns how much memory an Envoy for that many streams is allowed: each of
// SandboxRequests may be slow.
func Heap(streams int) int64 { return baseHeap + int64(SandboxRequests(streams))*streamHeap }

// spareFiles is what Envoy opens beside client and pod connections: listeners,
// event loops, sockets to the gateway, and pooled pod connections that are idle.
const spareFiles = 1000

// Options describes one Envoy. The zero value of every field but RunDir works.
type Options struct {
	// RunDir holds the sockets that the following do not name.
	RunDir string
	// ExtProcSocket is where the gateway's ExternalProcessor and access log
	// services listen; default extproc.sock in RunDir.
	ExtProcSocket string
	// APISocket is where the gateway serves the REST API; default api.sock in
	// RunDir.
	APISocket string
	// AdminSocket is Envoy's admin interface; default envoy-admin.sock in RunDir.
	AdminSocket string
	// NodeID names this Envoy in its access log; default "gateway".
	NodeID string

	// ListenAddress is an IP address; default 127.0.0.1.
	ListenAddress string
	// Port is the TCP port clients connect to; default 8080.
	Port int
	// CertFile and KeyFile (PEM) turn TLS with HTTP/2 on; give both or none. They are
	// absolute paths in one folder: what is moved into it is read anew. Envoy also
	// needs the file that Certificate returns.
	CertFile, KeyFile string

	// HealthAddress is where GET /health is answered on a listener of its own, plain
	// HTTP, which the limits below do not close: an IP address and a port. Empty is
	// nowhere but where clients connect.
	HealthAddress string

	// MaxStreams bounds client connections, and separately open requests;
	// default 10,000. An Envoy needs Files(MaxStreams) file descriptors.
	MaxStreams int
	// MaxHeapBytes is the heap at which new requests are refused (at 98 %);
	// default Heap(MaxStreams).
	MaxHeapBytes int64

	// MessageTimeout is how long ExtProc may take before it asks for more time;
	// default 2 s.
	MessageTimeout time.Duration
	// MaxMessageTimeout bounds what ExtProc may ask for; default 5 min.
	MaxMessageTimeout time.Duration
	// StreamIdleTimeout ends a request or WebSocket on which nothing moves;
	// default 15 min. E2B's clients expect more than 10.
	StreamIdleTimeout time.Duration

	// HeadersTimeout is how long a client may take for each step until the headers
	// of a request are there: until its first byte, for the TLS handshake, from the
	// first byte to the last header; default 10 s.
	HeadersTimeout time.Duration
	// ConnectionIdleTimeout is how long a client's connection is kept that has no
	// request open, once it has had a first byte; default 2 min.
	ConnectionIdleTimeout time.Duration

	// ClientRate bounds the requests a second of one client address (of one /64 of
	// IPv6), as the connection has it, or as the TrustedHops saw it; 0 bounds none. Behind a
	// balancer that hides addresses all clients have one.
	ClientRate int

	// TrustedHops is how many proxies in front of Envoy are believed: X-Forwarded-Proto is
	// kept as the last of them sent it, and a client's address is the one that they
	// saw, by X-Forwarded-For. Every connection must come through all of them. 0 believes
	// no header.
	TrustedHops int

	// FastPath answers hits inside Envoy. The zero value asks ExtProc for each request.
	FastPath FastPath

	// RetransmitMax bounds the pauses between two tries to send what a pod has not
	// acknowledged, from 1 s on; 0 leaves them to the kernel. The kernel that Envoy runs
	// on must support that (see KernelRetransmitMax), or Envoy can reach no pod.
	RetransmitMax time.Duration
}

// SandboxRequests returns how many requests for sandboxes an Envoy for that many streams
// takes at once: an eighth more, which one tenant cannot take (package gateway/limits).
func SandboxRequests(streams int) int { return streams + (streams+7)/8 }

// Files returns how many file descriptors an Envoy for that many streams needs.
func Files(streams int) uint64 { return uint64(streams+SandboxRequests(streams)) + spareFiles }

// StreamsFor returns how many streams fit a limit of file descriptors, at most
// DefaultMaxStreams; 0 if the limit is too low for any.
func StreamsFor(files uint64) int {
	if files <= spareFiles {
		return 0
	}
	return int(min((files-spareFiles)*8/17, DefaultMaxStreams))
}

// Complete sets the defaults.
func (o *Options) Complete() {
	set(&o.ExtProcSocket, filepath.Join(o.RunDir, ExtProcSocketName))
	set(&o.APISocket, filepath.Join(o.RunDir, APISocketName))
	set(&o.AdminSocket, filepath.Join(o.RunDir, AdminSocketName))
	set(&o.NodeID, "gateway")
	set(&o.ListenAddress, DefaultListenAddress)
	set(&o.Port, DefaultPort)
	set(&o.MaxStreams, DefaultMaxStreams)
	set(&o.MaxHeapBytes, Heap(o.MaxStreams))
	set(&o.MessageTimeout, DefaultMessageTimeout)
	set(&o.MaxMessageTimeout, DefaultMaxMessageTimeout)
	set(&o.StreamIdleTimeout, DefaultStreamIdleTimeout)
	set(&o.HeadersTimeout, DefaultHeadersTimeout)
	set(&o.ConnectionIdleTimeout, DefaultConnectionIdleTimeout)
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

const maxTrustedHops = 10

// Longest path of a unix socket on Linux, without its closing zero byte.
const maxSocketPath = 107

// Validate reports every mistake in completed options.
func (o *Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, s := range []struct{ name, path string }{{"ExtProc socket", o.ExtProcSocket}, {"API socket", o.APISocket}, {"admin socket", o.AdminSocket}} {
		switch {
		case !filepath.IsAbs(s.path):
			bad("%s %q must be an absolute path", s.name, s.path)
		case len(s.path) > maxSocketPath:
			bad("%s %q is longer than the %d bytes a unix socket may have", s.name, s.path, maxSocketPath)
		}
	}
	if f := o.FastPath; f.given() && (!filepath.IsAbs(f.Module) || !filepath.IsAbs(f.Folder)) {
		bad("the fast path's module %q and folder %q must both be absolute paths", f.Module, f.Folder)
	}
	if _, err := netip.ParseAddr(o.ListenAddress); err != nil {
		bad("listen address %q must be an IP address", o.ListenAddress)
	}
	if o.HealthAddress != "" {
		if at, err := netip.ParseAddrPort(o.HealthAddress); err != nil || at.Port() == 0 {
			bad("health address %q must be an IP address and a port", o.HealthAddress)
		}
	}
	if o.Port < 1 || o.Port > 65535 {
		bad("port %d must lie between 1 and 65535", o.Port)
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		bad("a certificate needs its key and a key its certificate")
	} else if o.CertFile != "" && (!filepath.IsAbs(o.CertFile) || filepath.Dir(o.CertFile) != filepath.Dir(o.KeyFile)) {
		bad("certificate %q and key %q must be absolute paths in one folder", o.CertFile, o.KeyFile)
	}
	if o.MaxStreams < 1 {
		bad("max streams %d must be positive", o.MaxStreams)
	}
	if o.MaxHeapBytes < 1 {
		bad("max heap %d must be positive", o.MaxHeapBytes)
	}
	if o.MessageTimeout < 0 || o.MaxMessageTimeout < o.MessageTimeout {
		bad("max message timeout %v must be at least the message timeout %v", o.MaxMessageTimeout, o.MessageTimeout)
	}
	if o.RetransmitMax != 0 && (o.RetransmitMax < time.Second || o.RetransmitMax > 2*time.Minute) {
		bad("retransmit max %v must be 0 or lie between 1s and 2m", o.RetransmitMax)
	}
	if o.HeadersTimeout < 0 {
		bad("headers timeout %v must not be negative", o.HeadersTimeout)
	}
	if o.ConnectionIdleTimeout < time.Second {
		bad("connection idle timeout %v must be at least 1s", o.ConnectionIdleTimeout)
	}
	if o.ClientRate < 0 || o.ClientRate > math.MaxInt32 {
		bad("client rate %d must be 0 or a positive number of requests a second", o.ClientRate)
	}
	if o.TrustedHops < 0 || o.TrustedHops > maxTrustedHops {
		bad("trusted hops %d must lie between 0 and %d", o.TrustedHops, maxTrustedHops)
	}
	if o.StreamIdleTimeout < 0 {
		bad("stream idle timeout %v must not be negative", o.StreamIdleTimeout)
	}
	return errors.Join(errs...)
}
