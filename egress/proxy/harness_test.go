package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/record"
	"github.com/sandlane/sandlane/egress/upstream"
)

// here is what names are answered with that lead to the proxy.
var here = netip.MustParseAddr("192.0.2.1")

// world is a proxy, an internet of one address with servers of HTTP and HTTPS for every
// name, and pods at 127.0.1.0/24.
type world struct {
	*Server
	ports map[uint16]uint16                // of the internet's servers
	trust *x509.CertPool                   // what sandboxes trust: the proxy's authority and the internet's
	lost  atomic.Bool                      // the lease
	by    atomic.Pointer[certificate.Pair] // the proxy's authority

	mu      sync.Mutex
	addrs   map[string]string // of hosts; others are the internet's
	secrets map[string]string
	seen    []*http.Request // by the internet, with bodies read
	// connected is called for each handshake with the internet.
	connected func()
	rv        uint64
	records   []record.Record
}

func (w *world) keepRecord(r record.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

func authority(t testing.TB, name string) *certificate.Pair {
	t.Helper()
	from, until := certificate.Validity(time.Now(), time.Hour)
	pair, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: from, NotAfter: until,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newWorld starts all of it; handle is the internet, after what it was asked was noted.
func newWorld(t testing.TB, handle http.HandlerFunc) *world {
	t.Helper()
	w := &world{ports: map[uint16]uint16{}, addrs: map[string]string{}, secrets: map[string]string{}, trust: x509.NewCertPool()}
	ours, internet := authority(t, "egress"), authority(t, "internet")
	w.trust.AddCert(ours.Cert)
	w.trust.AddCert(internet.Cert)
	w.by.Store(ours)
	sign, err := NewAuthority(w.by.Load)
	if err != nil {
		t.Fatal(err)
	}
	w.internet(t, internet, handle)
	closed, err := egress.ClosedRanges([]string{"203.0.113.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	dialer := &upstream.Dialer{Closed: closed, Own: map[string][]netip.Prefix{}, Resolve: w.resolve}
	for _, open := range []string{"api.example", "other.example", "ruled.example", "plain.example", "forged.example", "x.wild.example"} {
		dialer.Own[open] = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(internet.Cert)
	w.Server, err = New(Options{
		Listeners: Listeners{HTTP: listen(t), HTTPS: listen(t), NameStreams: listen(t), Names: packets},
		Address:   here, Held: func() bool { return !w.lost.Load() }, Upstream: mapped{dialer, w.ports}, Authority: sign, Roots: roots,
		Reveal: w.reveal, Record: w.keepRecord, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	return w
}

// internet serves every name but forged.example, for which it has no certificate.
func (w *world) internet(t testing.TB, by *certificate.Pair, handle http.HandlerFunc) {
	t.Helper()
	from, until := certificate.Validity(time.Now(), time.Hour)
	pair, err := certificate.New(&x509.Certificate{DNSNames: []string{"api.example", "other.example", "ruled.example", "x.wild.example"}, NotBefore: from, NotAfter: until}, by)
	if err != nil {
		t.Fatal(err)
	}
	noted := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if handle == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.mu.Lock()
		w.seen = append(w.seen, r.Clone(context.Background()))
		w.mu.Unlock()
		if handle != nil {
			handle(rw, r)
			return
		}
		fmt.Fprintf(rw, "%s %s", r.Proto, r.Host)
	})
	secure := httptest.NewUnstartedServer(noted)
	secure.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}},
		VerifyConnection: func(tls.ConnectionState) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.connected != nil {
				w.connected()
			}
			return nil
		},
	}
	secure.EnableHTTP2 = true
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	plain := httptest.NewServer(noted)
	t.Cleanup(func() { secure.Close(); plain.Close() })
	for port, s := range map[uint16]*httptest.Server{443: secure, 80: plain} {
		w.ports[port] = s.Listener.Addr().(*net.TCPAddr).AddrPort().Port()
	}
}

// mapped connects to the ports of the internet's servers.
type mapped struct {
	*upstream.Dialer
	ports map[uint16]uint16
}

func (m mapped) Dial(ctx context.Context, host string, port uint16, allowed func(netip.Addr) bool) (net.Conn, error) {
	return m.Dialer.Dial(ctx, host, m.ports[port], allowed)
}

func (w *world) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch addr := w.addrs[host]; addr {
	case "none":
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	case "":
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	default:
		return []netip.Addr{netip.MustParseAddr(addr)}, nil
	}
}

func (w *world) reveal(namespace, name string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if value, there := w.secrets[namespace+"/"+name]; there {
		return value, nil
	}
	return "", errors.New("there is no such secret")
}

// asked returns what the internet was asked.
func (w *world) asked() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func podAddr(n byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, n}) }

// idle shows a pod without a claim.
func (w *world) idle(n byte) {
	w.rv++
	w.Claims().See(claims.Pod{UID: fmt.Sprint("pod-", n), Addr: podAddr(n), RV: w.rv})
}

// claim gives the pod a claim with the rules, and waits until its connections are served.
func (w *world) claim(t testing.TB, n byte, id string, r names.Rules) {
	t.Helper()
	w.idle(n)
	w.rules(t, n, id, r)
	for {
		use, err := w.Claims().Arrive(podAddr(n)).Wait(t.Context(), func() {})
		if err == nil {
			use.Done()
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// rules shows the pod with a claim.
func (w *world) rules(t testing.TB, n byte, id string, r names.Rules) {
	t.Helper()
	policy, err := names.NewPolicy(r)
	if err != nil {
		t.Fatal(err)
	}
	w.rv++
	w.Claims().See(claims.Pod{UID: fmt.Sprint("pod-", n), Addr: podAddr(n), RV: w.rv, Claim: &claims.Claim{Namespace: "team", SandboxID: "s-" + id, ClaimID: id, Policy: policy}})
}

// dialFrom connects to one of the proxy's listeners as the pod does.
func dialFrom(t testing.TB, n byte, l net.Listener) net.Conn {
	t.Helper()
	c, err := tryFrom(t, n, l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryFrom(t testing.TB, n byte, l net.Listener) (net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(podAddr(n), 0)), Timeout: 10 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp4", l.Addr().String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c, c.SetDeadline(time.Now().Add(20 * time.Second))
}

// client is an HTTP client in the pod, for which every name is at the proxy. With http2 it
// speaks that alone.
func (w *world) client(t testing.TB, n byte, http2 bool) *http.Client {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.trust}, Protocols: &protocols,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			l := w.o.Listeners.HTTPS
			if _, port, _ := net.SplitHostPort(addr); port == "80" {
				l = w.o.Listeners.HTTP
			}
			return tryFrom(t, n, l)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// secure is a TLS connection of the pod's to the proxy, by HTTP/1.
func (w *world) secure(t testing.TB, n byte, name string) (*tls.Conn, error) {
	t.Helper()
	conn, err := tryFrom(t, n, w.o.Listeners.HTTPS)
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, &tls.Config{ServerName: name, RootCAs: w.trust, NextProtos: []string{"http/1.1"}})
	return c, c.HandshakeContext(t.Context())
}

// answer reads what a server says until it closes.
func answer(c net.Conn, request string) string {
	_, _ = io.WriteString(c, request)
	b, _ := io.ReadAll(c)
	return string(b)
}
