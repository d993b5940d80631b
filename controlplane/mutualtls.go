package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"google.golang.org/grpc/credentials"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Identities that certificates show by default, as a DNS name.
const (
	ControllerIdentity = "sandlane-controller"
	GatewayIdentity    = "sandlane-gateway"
	EgressIdentity     = "sandlane-egress"
)

// TLSFiles are one side's files and the identity of the other side. All are required
// but Log. The files are in PEM.
type TLSFiles struct {
	// Cert and Key are what this side shows: a chain, its own certificate first.
	Cert, Key string
	// CA has the authorities that the other side's certificate is to come from.
	CA string
	// Peer is the identity that the other side must show: exactly one of the DNS names or URIs of
	// its certificate.
	Peer string
	// Log may be nil.
	Log *slog.Logger
}

// Given tells whether any file is named.
func (f TLSFiles) Given() bool { return f.Cert != "" || f.Key != "" || f.CA != "" }

// MutualTLS are one side of the control plane's mutual TLS. A peer that shows no
// certificate, an expired one, one of another authority, of another purpose or
// of another identity is refused, before any call of its is read. There is no
// way to switch any of that off.
//
// Files that change are in force for the connections that are made from then on;
// others last for connectionAge. A certificate without its key, or a file without
// an authority, as it stands there for a moment while files are replaced, is
// reported and changes nothing.
//
// A gateway hears the controller alone, the controller talks to gateways alone. What may
// go wrong:
//
//	the other side shows no good      refused at the handshake, and logged by both;
//	certificate, or speaks no TLS     no call is read. For the controller that is a
//	                                  gateway which does not answer (below)
//	a certificate expires, or its     refused from the next connection on, which is
//	authority is not trusted any more at most connectionAge away
//	a file is replaced                in force for the next connection
//	a file is unreadable or makes no  logged; the one before stays in force, and
//	sense                             expires as it says
//	no files are given                unix sockets alone, which have a file mode; TCP
//	                                  is refused at the start, on both sides
type MutualTLS struct {
	files   TLSFiles
	watcher *certwatcher.CertWatcher

	mu sync.Mutex
	// pem is what pool was made from. Guarded by mu.
	pem  []byte
	pool *x509.CertPool // guarded by mu
}

// LoadTLS reads the files. Start follows their changes.
func LoadTLS(files TLSFiles) (*MutualTLS, error) {
	if files.Cert == "" || files.Key == "" || files.CA == "" || files.Peer == "" {
		return nil, errors.New("control-plane TLS: a certificate, its key, an authority and the other side's identity are required")
	}
	if files.Log == nil {
		files.Log = slog.Default()
	}
	c := &MutualTLS{files: files}
	if err := c.readAuthorities(); err != nil {
		return nil, fmt.Errorf("control-plane TLS: %w", err)
	}
	var err error
	if c.watcher, err = certwatcher.New(files.Cert, files.Key); err != nil {
		return nil, fmt.Errorf("control-plane TLS: reading %s and its key: %w", files.Cert, err)
	}
	return c, nil
}

// Start reads the certificate anew whenever its files change, until the context
// ends. Call it once.
func (c *MutualTLS) Start(ctx context.Context) error {
	if err := c.watcher.Start(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watching %s: %w", c.files.Cert, err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the certificate
// must be current when this controller becomes the leader.
func (*MutualTLS) NeedLeaderElection() bool { return false }

// For returns the same side for peers of another identity. c is started as before; what For
// returns is not.
func (c *MutualTLS) For(peer string) *MutualTLS {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.files
	files.Peer = peer
	return &MutualTLS{files: files, watcher: c.watcher, pem: c.pem, pool: c.pool}
}

// server are the transport credentials of a gateway. The standard checks are
// replaced by verify, which alone follows changes of the authorities.
func (c *MutualTLS) server() credentials.TransportCredentials {
	config := c.config(x509.ExtKeyUsageClientAuth)
	config.GetCertificate = c.watcher.GetCertificate
	config.ClientAuth = tls.RequireAnyClientCert
	return newReporting(credentials.NewTLS(config), c.files.Log)
}

// client are those of a controller.
func (c *MutualTLS) client() credentials.TransportCredentials {
	config := c.config(x509.ExtKeyUsageServerAuth)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return c.watcher.GetCertificate(nil)
	}
	config.InsecureSkipVerify = true // verify does it, by identity: an address is no identity here
	return credentials.NewTLS(config)
}

func (c *MutualTLS) config(usage x509.ExtKeyUsage) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A session that is resumed would bring the trust of its first handshake.
		SessionTicketsDisabled: true,
		VerifyConnection:       func(s tls.ConnectionState) error { return c.verify(s.PeerCertificates, usage) },
	}
}

// verify decides which peer is let in. It runs at each handshake, on both sides.
func (c *MutualTLS) verify(shown []*x509.Certificate, usage x509.ExtKeyUsage) error {
	if len(shown) == 0 {
		return errors.New("the other side shows no certificate")
	}
	if err := c.readAuthorities(); err != nil {
		c.files.Log.Error("the control plane goes on with the authorities it had", "error", err)
	}
	c.mu.Lock()
	options := x509.VerifyOptions{Roots: c.pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	c.mu.Unlock()
	for _, between := range shown[1:] {
		options.Intermediates.AddCert(between)
	}
	if _, err := shown[0].Verify(options); err != nil {
		return fmt.Errorf("the other side's certificate: %w", err)
	}
	if names := identities(shown[0]); !slices.Contains(names, c.files.Peer) {
		return fmt.Errorf("the other side is %q, want %q", names, c.files.Peer)
	}
	return nil
}

// identities returns the DNS names and URIs of a certificate. Its IP addresses and its
// subject do not count.
func identities(cert *x509.Certificate) []string {
	names := slices.Clone(cert.DNSNames)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	return names
}

// readAuthorities takes in the authorities' file as it is now. Handshakes are
// rare: one a gateway, and another each connectionAge.
func (c *MutualTLS) readAuthorities() error {
	pem, err := os.ReadFile(c.files.CA)
	if err != nil {
		return fmt.Errorf("reading the authorities: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pool != nil && bytes.Equal(pem, c.pem) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate", c.files.CA)
	}
	c.pem, c.pool = pem, pool
	return nil
}
