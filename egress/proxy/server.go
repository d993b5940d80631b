package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/dns"
	"github.com/sandlane/sandlane/egress/record"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// maxOpen bounds the connections of one address that are open at once.
	maxOpen = 1024
	// maxSessions bounds the hosts whose TLS sessions are kept.
	maxSessions = 1024
)

// Upstream connects to hosts and finds their addresses; *upstream.Dialer is one.
type Upstream interface {
	Dial(ctx context.Context, host string, port uint16, allowed func(netip.Addr) bool) (net.Conn, error)
	Addrs(ctx context.Context, host string) ([]netip.Addr, error)
}

// Listeners are where sandboxes reach a Server; it closes them.
type Listeners struct {
	// HTTP, HTTPS and NameStreams are TCP at IPv4 addresses.
	HTTP, HTTPS, NameStreams net.Listener
	// Names is UDP.
	Names net.PacketConn
}

// Options configure a Server. All but Roots, Metrics and Record are required.
type Options struct {
	Listeners Listeners
	// Address is what names are answered with whose connections are to come here.
	Address netip.Addr
	// Held reports whether this process holds its lease.
	Held     func() bool
	Upstream Upstream
	// Authority signs the certificates of hosts with rules.
	Authority *Authority
	// Roots are what upstreams of hosts with rules are verified against. Nil: the system's.
	Roots *x509.CertPool
	// Reveal opens a namespace's secret. Its errors are shown to the sandbox and say
	// nothing of a value.
	Reveal func(namespace, name string) (string, error)
	// Metrics may be nil.
	Metrics *Metrics
	// Record is given what became of each connection, and does not wait; nil keeps none.
	Record func(record.Record)
	Log    *slog.Logger
}

// Server serves sandboxes.
type Server struct {
	o     Options
	table *claims.Table
	// http, https and names accept the listeners' connections.
	http, https, names *claims.Door
	requests           *http.Server
	handed             *handed
	// sessions are those of TLS with hosts that have rules. They are verified once, with the
	// host's certificate, and carry nothing of a sandbox.
	sessions tls.ClientSessionCache
	quiet    time.Duration // maxQuiet, but in tests

	mu   sync.Mutex
	open map[netip.Addr]int // connections of each address
}

// New returns a Server that knows no pod and serves once Start is called.
func New(o Options) (*Server, error) {
	in := o.Listeners
	if in.HTTP == nil || in.HTTPS == nil || in.NameStreams == nil || in.Names == nil || !o.Address.Is4() || o.Held == nil || o.Upstream == nil || o.Authority == nil || o.Reveal == nil || o.Log == nil {
		return nil, errors.New("egress proxy: listeners, an IPv4 address, lease, upstream, authority, secrets and log are required")
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil, o.Held)
	}
	if o.Record == nil {
		o.Record = func(record.Record) {}
	}
	s := &Server{o: o, open: map[netip.Addr]int{}, handed: newHanded(), sessions: tls.NewLRUClientSessionCache(maxSessions), quiet: maxQuiet}
	s.table = claims.NewTable(claims.Options{Held: o.Held, Barrier: s.barrier, Log: o.Log})
	s.http, s.https, s.names = claims.NewDoor(in.HTTP, s.table), claims.NewDoor(in.HTTPS, s.table), claims.NewDoor(in.NameStreams, s.table)
	s.requests = s.newRequests()
	return s, nil
}

// Claims returns the table that says whose connections are.
func (s *Server) Claims() *claims.Table { return s.table }

// barrier implements claims.Options.Barrier.
func (s *Server) barrier(ctx context.Context) error {
	for _, door := range []*claims.Door{s.http, s.https, s.names} {
		if err := door.Pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Start serves until the context ends or a listener fails, then closes all connections and
// returns when nothing is served any more. Call it once.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving sync.WaitGroup
	run := func(what string, f func() error) {
		serving.Go(func() {
			if err := f(); err != nil {
				cancel(fmt.Errorf("egress proxy: %s: %w", what, err))
			}
		})
	}
	run("HTTP", func() error { return s.accept(ctx, s.http, portHTTP, s.servePlain) })
	run("HTTPS", func() error { return s.accept(ctx, s.https, portHTTPS, s.serveTLS) })
	run("names by TCP", func() error { return s.accept(ctx, s.names, portNames, s.serveNames) })
	run("names", func() error {
		return dns.Packets(s.o.Listeners.Names, func(from netip.Addr) dns.Answerer { return s.answerer(ctx, from, s.table.Arrive(from)) })
	})
	run("requests", func() error {
		if err := s.requests.Serve(s.handed); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	<-ctx.Done()
	for _, l := range []net.Listener{s.o.Listeners.HTTP, s.o.Listeners.HTTPS, s.o.Listeners.NameStreams} {
		_ = l.Close()
	}
	_ = s.o.Listeners.Names.Close()
	err := s.table.Drop(context.WithoutCancel(ctx))
	_ = s.requests.Close()
	serving.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// accept serves a door's connections until its listener is closed; it returns when all
// are served.
func (s *Server) accept(ctx context.Context, door *claims.Door, port uint16, serve func(*link, *claims.Use, *leased)) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	for delays := backoff.Doubling(5*time.Millisecond, time.Second); ; {
		c, arrival, err := door.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // such as too many open files
			s.o.Log.Error("a connection could not be accepted", "error", err)
			if !backoff.Sleep(ctx, delays.Step()) {
				return nil
			}
			continue
		}
		delays = backoff.Doubling(5*time.Millisecond, time.Second)
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if !s.enter(from) {
			s.o.Metrics.connections.WithLabelValues(verdictMany).Inc()
			s.o.Record(record.Record{Time: time.Now(), From: from.String(), Port: port, Verdict: verdictMany})
			abort(c)
			continue
		}
		serving.Go(func() {
			defer s.leave(from)
			l := newLink(ctx, c, s.quiet)
			l.record.From, l.record.Port = from.String(), port
			s.serve(l, arrival, serve)
			s.keep(l.recorded())
		})
	}
}

func (s *Server) enter(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[from] >= maxOpen {
		return false
	}
	s.open[from]++
	return true
}

func (s *Server) leave(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[from]--; s.open[from] == 0 {
		delete(s.open, from)
	}
}

// serve serves a connection for the claim that it belongs to. What it says by Done is true:
// serve returns when nothing is done for the connection any more.
func (s *Server) serve(l *link, arrival claims.Arrival, serve func(*link, *claims.Use, *leased)) {
	use, err := arrival.Wait(l.ctx, l.abort)
	if err != nil {
		s.became(l, verdictUnknown)
		l.abort()
		return
	}
	defer use.Done()
	defer l.finish()
	claim := use.Claim() // not with the link's lock; see link.mu
	l.note(func(r *record.Record) { of(r, claim) })
	serve(l, use, newLeased(l.client, s.o.Held))
}

// of says whose a record is; nil: nobody's any more.
func of(r *record.Record, c *claims.Claim) {
	if c != nil {
		r.Namespace, r.Sandbox, r.Claim = c.Namespace, c.SandboxID, c.ClaimID
	}
}

// became notes and counts what became of a connection.
func (s *Server) became(l *link, verdict string) {
	s.o.Metrics.connections.WithLabelValues(verdict).Inc()
	l.note(func(r *record.Record) { r.Verdict = verdict })
}

// keep gives on the record of a connection that has ended. It is called when nothing is done
// for a claim any more, so that no fence waits for it.
func (s *Server) keep(r record.Record) {
	s.o.Metrics.bytes.WithLabelValues("sent").Add(float64(r.Sent))
	s.o.Metrics.bytes.WithLabelValues("received").Add(float64(r.Received))
	if r.Verdict != "" { // the questions of a connection have records of their own
		s.o.Record(r)
	}
}
