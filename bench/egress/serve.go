package egress

import (
	"bufio"
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
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/proxy"
	"github.com/sandlane/sandlane/egress/record"
	"github.com/sandlane/sandlane/egress/upstream"
)

const (
	// open is the host without a rule, and ruledNames how many hosts with one a sandbox has.
	open, ruledNames = "open.example", 10
	// ruledDomain is above every host with a rule.
	ruledDomain = ".ruled.example"
	// secret is the value that rules put in.
	secret = "hello"
)

// ruled is the j-th host with a rule of the i-th sandbox.
func ruled(i, j int) string { return fmt.Sprintf("s%d-n%d%s", i, j, ruledDomain) }

// Options of the programs beside the client.
type Options struct {
	// Dir has the authority that signs for all hosts, as files.
	Dir string
	// HTTPS and Names are ports of the loopback interface that the egress process serves at;
	// Internet is that of the host.
	HTTPS, Names, Internet int
	// Sandboxes are at suite.Address.
	Sandboxes int
}

const certFile, keyFile = "authority.crt", "authority.key"

func writeAuthority(dir string) (*certificate.Pair, error) {
	from, until := certificate.Validity(time.Now(), 24*time.Hour)
	pair, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: from, NotAfter: until,
	}, nil)
	if err != nil {
		return nil, err
	}
	cert, key, err := pair.PEM()
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(dir+"/"+name, text, 0o600); err != nil {
			return nil, fmt.Errorf("write the authority: %w", err)
		}
	}
	return pair, nil
}

func readAuthority(dir string) (*certificate.Pair, error) {
	cert, err := os.ReadFile(dir + "/" + certFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	key, err := os.ReadFile(dir + "/" + keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	c, err := certificate.ParseCert(certFile, cert)
	if err != nil {
		return nil, err
	}
	k, err := certificate.ParseKey(keyFile, key)
	if err != nil {
		return nil, err
	}
	return certificate.Join(certFile, c, keyFile, k)
}

// Internet serves all hosts by HTTPS until ctx ends: /N is N bytes, all else the credential
// that the request had.
func Internet(ctx context.Context, o Options) error {
	by, err := readAuthority(o.Dir)
	if err != nil {
		return err
	}
	from, until := certificate.Validity(time.Now(), 24*time.Hour)
	pair, err := certificate.New(&x509.Certificate{DNSNames: []string{open, "*" + ruledDomain}, NotBefore: from, NotAfter: until}, by)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", local(o.Internet))
	if err != nil {
		return fmt.Errorf("listen as the internet: %w", err)
	}
	piece := make([]byte, 64<<10)
	s := &http.Server{
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}}},
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, 0),
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			size, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
			if err != nil {
				_, _ = io.WriteString(w, r.Header.Get("Authorization"))
				return
			}
			w.Header().Set("Content-Length", strconv.Itoa(size))
			for ; size > 0; size -= len(piece) {
				if _, err := w.Write(piece[:min(size, len(piece))]); err != nil {
					return
				}
			}
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve as the internet: %w", err)
	}
	return nil
}

// established answers a request with the method CONNECT.
const established = "HTTP/1.1 200 OK\r\n\r\n"

// Connect serves CONNECT to the internet at o.HTTPS, until ctx ends.
func Connect(ctx context.Context, o Options) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", local(o.HTTPS))
	if err != nil {
		return fmt.Errorf("listen for CONNECT: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		go connect(ctx, c, local(o.Internet))
	}
}

func connect(ctx context.Context, c net.Conn, to string) {
	defer func() { _ = c.Close() }()
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		return
	}
	up, err := (&net.Dialer{}).DialContext(ctx, "tcp4", to)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	if _, err := io.WriteString(c, established); err != nil {
		return
	}
	go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
	_, _ = io.Copy(c, up)
}

// Egress serves as the egress process until ctx ends. It makes all records and keeps none.
func Egress(ctx context.Context, o Options) error {
	by, err := readAuthority(o.Dir)
	if err != nil {
		return err
	}
	authority, err := proxy.NewAuthority(func() *certificate.Pair { return by })
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(by.Cert)
	in, err := listen(ctx, o)
	if err != nil {
		return err
	}
	held := func() bool { return true }
	metrics := proxy.NewMetrics(prometheus.NewRegistry(), held)
	records := record.NewWriter(io.Discard, 1, metrics.RecordLost)
	s, err := proxy.New(proxy.Options{
		Listeners: in, Address: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Held: held, Upstream: internet{uint16(o.Internet)}, Authority: authority, Roots: roots,
		Reveal: func(string, string) (string, error) { return secret, nil }, Metrics: metrics, Record: records.Add, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for i := range o.Sandboxes {
		if err := tell(s.Claims(), i); err != nil {
			return err
		}
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return s.Start(ctx) })
	running.Go(func() error { return records.Start(ctx) })
	return running.Wait()
}

func listen(ctx context.Context, o Options) (in proxy.Listeners, err error) {
	var config net.ListenConfig
	for _, l := range []struct {
		to   *net.Listener
		port int
	}{{&in.HTTPS, o.HTTPS}, {&in.NameStreams, o.Names}, {&in.HTTP, 0}} {
		if *l.to, err = config.Listen(ctx, "tcp4", local(l.port)); err != nil {
			return in, fmt.Errorf("listen for sandboxes: %w", err)
		}
	}
	if in.Names, err = config.ListenPacket(ctx, "udp4", local(o.Names)); err != nil {
		return in, fmt.Errorf("listen for sandboxes: %w", err)
	}
	return in, nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// tell shows the table a sandbox with its rules.
func tell(table *claims.Table, i int) error {
	rules := names.Rules{DenyAll: true, AllowNames: []string{open}, Headers: map[string]map[string]string{}}
	for j := range ruledNames {
		rules.AllowNames = append(rules.AllowNames, ruled(i, j))
		rules.Headers[ruled(i, j)] = map[string]string{"Authorization": "Bearer ${e2b.secrets.key}"}
	}
	policy, err := names.NewPolicy(rules)
	if err != nil {
		return err
	}
	table.See(claims.Pod{UID: "pod-" + strconv.Itoa(i), Addr: suite.Address(uint32(i)), RV: uint64(i + 1), Claim: &claims.Claim{
		Namespace: suite.Namespace, SandboxID: "b" + strconv.Itoa(i), ClaimID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Policy: policy,
	}})
	return nil
}

// internet has every host at a port of the loopback interface, which is closed to the dialer
// of egress/upstream but for hosts that the operator opens: it is told of those that are asked.
type internet struct{ port uint16 }

func (n internet) of(host string) *upstream.Dialer {
	home := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	return &upstream.Dialer{
		Own:     map[string][]netip.Prefix{host: {netip.PrefixFrom(home, 32)}},
		Resolve: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{home}, nil },
	}
}

// Dial implements proxy.Upstream.
func (n internet) Dial(ctx context.Context, host string, _ uint16, allowed func(netip.Addr) bool) (net.Conn, error) {
	return n.of(host).Dial(ctx, host, n.port, allowed)
}

// Addrs implements proxy.Upstream.
func (n internet) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	return n.of(host).Addrs(ctx, host)
}
