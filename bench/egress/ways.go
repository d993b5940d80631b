package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandlane/sandlane/bench/suite"
)

// way is how a sandbox's requests go to a host.
type way struct {
	name string
	// address is connected to; with tunnel it is asked for the host by CONNECT.
	address string
	tunnel  bool
	// want is what the host answers with.
	want  string
	trust *x509.CertPool
	// between is the process on the way; nil if there is none.
	between *suite.Process
}

// transport has the connections of the i-th sandbox.
func (w way) transport(i int, kept bool) *http.Transport {
	from := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(suite.Address(uint32(i)), 0))}
	return &http.Transport{
		DisableKeepAlives: !kept, TLSClientConfig: &tls.Config{RootCAs: w.trust, MinVersion: tls.VersionTLS13},
		DialContext: func(ctx context.Context, _, host string) (net.Conn, error) {
			c, err := from.DialContext(ctx, "tcp4", w.address)
			if err != nil || !w.tunnel {
				return c, err
			}
			if _, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host); err == nil {
				_, err = io.ReadFull(c, make([]byte, len(established)))
			}
			return c, err
		},
	}
}

// get sends a request, and returns how long it took. It fails if another answer comes than
// the way's.
func (w way) get(ctx context.Context, t *http.Transport, host string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	resp, err := t.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(resp.Body)
	took := time.Since(begun)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK || string(body) != w.want {
		return 0, fmt.Errorf("%s answered %s, %q, want %q", host, resp.Status, body, w.want)
	}
	return took, nil
}

// download reads so many bytes, and returns how long it took.
func (w way) download(ctx context.Context, t *http.Transport, host string, size int) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/%d", host, size), nil)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	resp, err := t.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	took := time.Since(begun)
	if err = errors.Join(err, resp.Body.Close()); err == nil && n != int64(size) {
		err = fmt.Errorf("%d bytes came of %d", n, size)
	}
	return took, err
}

// used returns how much the process between has computed so far.
func (w way) used() (time.Duration, error) {
	if w.between == nil {
		return 0, nil
	}
	return w.between.CPU()
}

// round sends one request after the other for d. It returns their p50, and the processor time
// a request of the process between.
func (w way) round(ctx context.Context, host string, kept bool, d time.Duration) (p50, cpu time.Duration, err error) {
	t := w.transport(0, kept)
	defer t.CloseIdleConnections()
	if _, err := w.get(ctx, t, host); err != nil { // also what only a first connection costs
		return 0, 0, err
	}
	before, err := w.used()
	if err != nil {
		return 0, 0, err
	}
	var took []time.Duration
	for end := time.Now().Add(d); len(took) == 0 || time.Now().Before(end); {
		one, err := w.get(ctx, t, host)
		if err != nil {
			return 0, 0, err
		}
		took = append(took, one)
	}
	after, err := w.used()
	slices.Sort(took)
	return took[len(took)/2], (after - before) / time.Duration(len(took)), err
}

// ask asks a name server for a host as the i-th sandbox does, and returns an error if the
// answer has no address.
func ask(ctx context.Context, i int, server, host string) error {
	question, err := (&dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(host + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}).Pack()
	if err != nil {
		return err
	}
	from := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(suite.Address(uint32(i)), 0))}
	c, err := from.DialContext(ctx, "udp4", server)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(question); err != nil {
		return err
	}
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(buf[:n]); err != nil {
		return err
	}
	if len(answer.Answers) != 1 {
		return fmt.Errorf("%s has %d addresses (%s)", host, len(answer.Answers), answer.RCode)
	}
	return nil
}
